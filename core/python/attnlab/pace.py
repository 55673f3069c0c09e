"""How long a function takes, so that a slow one is asked for less and not held to be endless."""
from __future__ import annotations

import math
import time

LEAST, SHARE, PATIENCE = 0.02, 20, 40.0


class Pace:
    """Processor seconds of calls by their rows, and by their products of numbers: at the best rate so far, since short
    calls take time for themselves. A call may take a part of the seconds that are left for all."""

    def __init__(self) -> None:
        self._row = self._product = math.inf
        self._left = PATIENCE

    def allows(self, rows: int, products: int) -> bool:
        """Is a call worth its time? The first is."""
        expected = max(rows * self._row, products * self._product)
        return math.isinf(expected) or expected <= max(LEAST, self._left / SHARE)

    def note(self, rows: int, products: int, begin: float) -> None:
        """A call that began at this time of the process has ended."""
        seconds = time.process_time() - begin
        self._row, self._product = min(self._row, seconds / max(rows, 1)), min(self._product, seconds / max(products, 1))
        self._left = max(self._left - seconds, 0)
