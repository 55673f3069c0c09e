"""Texts as ids, held against `tokenizers`: models that it trains here, and what it does before they see a text. By hand:
`tests/run.sh --real`."""
import io
import json
import os
import pathlib
import random
import subprocess
import tempfile
import unittest
import warnings

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

LINES = 10000
# Characters in use since Unicode 8, which is what `tokenizers` has tables of; unassigned in any version.
SCRIPTS = ["abcdefghijklmnopqrstuvwxyz" * 3 + "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "àâäéèêëîïôöùûüçñßÆŒœøÅåŁłŻżĐđİıſ", "αβγδεζηθικλμνξοπρσςτυφχψωΆΈΉΪ",
           "абвгдежзийклмнопрстуфхцчшщъыьэюяЁЇ", "一二三四五六七八九十人工智能是的了不在有中国好説話𠀀𪜶", "ひらがなカタカナァィゥ々ー",
           "다람쥐헌쳇바퀴에타고파각낟닭ᄒ\u1161\u11ab", "กขคงจฉชซญฎฏ\u0e31\u0e34\u0e35\u0e48\u0e49ะาแโไ", "ابتثجحخدذرزسشصضطظعغفقكلمنهوي\u064b\u064c\u064d\u064e\u0651لا",
           "אבגדהוזחטיכלמנסעפצקרשת\u05b0\u05b8\u05bc\ufb2a", "अआइईउकखगघचछजटठडतथदनपफबमयरलवशषसह\u093e\u093f\u0940\u094d\u0902\u093c",
           "a\u0301e\u0300o\u0308u\u0302n\u0303c\u0327\u0323q\u0307\u0323", "0123456789", "٠١٢٣۴۵१२३๑๒๓ⅣⅫ½¾²³①⑳１２３Ⓐⓑ", "ﬁﬂ™℃Åΐ㌔㎏…ｆｕｌｌ（！）ﾊﾞﾝｸ™\u1e9b\u0323",
           "👍🏽👩\u200d👩\u200d👧🏳\ufe0f\u200d🌈☺\ufe0f🇩🇪🙂❤", ".,;:!?-_()[]{}<>/\\|@#$%^&*+=~`'\"", "«»„“”–—…·、。！？（）「」§¶†‡•؟،",
           " \t\n\r\v\f", "\u00a0\u1680\u2000\u2009\u2028\u2029\u202f\u205f\u3000\u0085", "\x01\x02\x07\x08\x0e\x1b\x1f\x7f\x80\x9f\u00ad\u200b\u200d\u200e\u2060\ufeff\ufffd\ue000\U000f0000",
           "\u0378\u0530\u2fe0\ufdd0\ufffe\uffff\U000e0080\U0001ffff\U0010ffff"]
CODE = ["int main(int argc, char **argv) {\n\treturn argc > 1 ? argv[1][0] : -1; /* 0xFF */\n}", "for (size_t i = 0; i < n; ++i)    sum += x[i] * 1e-3;\r\n",
        "def f(x: int = 3, *args) -> str:\n    return f\"{x!r:>8}\" + 'it''s' # don't\n\n", "    if a_b__c != None and not d:\n        pass\n",
        "{\"key\": [1, 2.5e10, null, true], \"näme\": \"a\\u00e9\\n\", \"o\": {}}", "SELECT * FROM t WHERE a <= 'b%' -- don't, we'll, I'VE\n", "https://example.org/a?b=c&d=%20#e <b>x</b>",
        "The quick brown fox jumps over the lazy dog, he's said.", "Voilà l'été où naïve façade coexiste déjà.", "Übermäßig große Straßen für Füße."]
MARKS = ["<s>", "</s>", " <mask>", "<Mask>  ", "[SEP]", "mask", "\u2581", "<0x41>", "<unk>", "ΟΔΟΣ", "word mask,word", "   ", "\n\n\n"]


def texts():
    draw = random.Random(7)
    for _ in range(LINES):
        parts = []
        for _ in range(draw.randint(1, 7)):
            kind = draw.random()
            if kind < 0.15:
                parts.append(draw.choice(CODE))
            elif kind < 0.25:
                parts.append(draw.choice(MARKS))
            else:
                script = draw.choice(SCRIPTS)
                parts.append("".join(draw.choice(script) for _ in range(draw.randint(1, 12))))
            parts.append(draw.choice(["", " ", " ", " ", "  ", "\t", "\r\n"]))
        yield "".join(parts)


TEXTS = list(texts())
SPECIAL = ["<unk>", "<s>", "</s>"]


def bpe(**more):
    return Tokenizer(models.BPE(**more)), trainers.BpeTrainer(vocab_size=2000, special_tokens=SPECIAL, show_progress=False)


def byte_level(pre=None):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre or pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(TEXTS[:2000], trainers.BpeTrainer(
        vocab_size=2000, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return t


def edited(t, edit):
    """The same after a change of its file, which the trainer has no word for."""
    file = json.loads(t.to_str())
    edit(file)
    return Tokenizer.from_str(json.dumps(file))


def with_bytes(t, **more):
    """Byte fallback: tokens <0x00> ... behind the others, so that ids and merges stay."""
    def edit(file):
        vocab = file["model"]["vocab"]
        for byte in range(256):
            vocab.setdefault(f"<0x{byte:02X}>", len(vocab))
        file["model"].update(byte_fallback=True, unk_token="<unk>", fuse_unk=True, **more)
    return edited(t, edit)


def llama(normalizer=None, pre=None, unknown=False):
    t, trainer = bpe(unk_token="<unk>")
    t.normalizer = normalizer
    t.pre_tokenizer = pre
    trainer.limit_alphabet = 300
    t.train_from_iterator([text.replace(" ", "\u2581") if normalizer is None and pre is None else text for text in TEXTS[:2000]], trainer)
    return t if unknown else with_bytes(t)


def wordpiece(lower, **more):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=40))
    t.normalizer = normalizers.BertNormalizer(lowercase=lower, **more)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(TEXTS[:3000], trainers.WordPieceTrainer(
        vocab_size=3000, limit_alphabet=400, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return t


def unigram(normalizer, pre):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizer
    t.pre_tokenizer = pre
    # Of a token's name in the texts the trainer would make another token.
    t.train_from_iterator([text for text in TEXTS[:3000] if not any(mark in text for mark in SPECIAL + ["<0x41>"])], trainers.UnigramTrainer(
        vocab_size=2000, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False))
    return t


def charsmap(rule):
    """The map that SentencePiece compiles for a rule."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b"]), model_writer=out, vocab_size=6, normalization_rule_name=rule,
                                             hard_vocab_limit=False, minloglevel=2)
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(out.getvalue())
    return normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap)


PRE = {
    "byte level with a blank": pre_tokenizers.ByteLevel(add_prefix_space=True),
    "llama3": pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
    "whitespace": pre_tokenizers.Whitespace(), "whitespace split": pre_tokenizers.WhitespaceSplit(), "bert": pre_tokenizers.BertPreTokenizer(),
    "digits": pre_tokenizers.Digits(individual_digits=False), "single digits": pre_tokenizers.Digits(individual_digits=True),
    "delimiter": pre_tokenizers.CharDelimiterSplit("."),
    "sequence": pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(), pre_tokenizers.Metaspace(prepend_scheme="first")]),
} | {f"punctuation {rule}": pre_tokenizers.Punctuation(rule) for rule in ("removed", "merged_with_previous", "merged_with_next", "contiguous")} | {
    f"split {rule} {invert}": pre_tokenizers.Split(text, rule, invert) for invert in (False, True) for text, rule in (
        ("a", "isolated"), (Regex(r"\s+|\p{N}"), "removed"), (" ", "merged_with_previous"), (Regex(r"[\p{L}]+|,"), "merged_with_next"), (".", "contiguous"))} | {
    f"metaspace {scheme} {cut}": pre_tokenizers.Metaspace(prepend_scheme=scheme, split=cut) for scheme in ("always", "first", "never") for cut in (False, True)}
NORMAL = {name: getattr(normalizers, name)() for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "Strip")} | {
    "left": normalizers.Strip(left=True, right=False), "right": normalizers.Strip(left=False, right=True),
    "string": normalizers.Replace("a.b", "*"), "regex": normalizers.Replace(Regex(" {2,}|\\r\\n"), "\u2581"), "prepend": normalizers.Prepend("\u2581"),
    "bert": normalizers.BertNormalizer(strip_accents=False), "bert cased": normalizers.BertNormalizer(lowercase=False, clean_text=False, strip_accents=True),
    "charsmap": charsmap("nmt_nfkc"), "charsmap in lower case": charsmap("nmt_nfkc_cf"),
    "several": normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Replace("o", "")])}


class Tokens(unittest.TestCase):
    def same(self, name, t):
        with self.subTest(name), tempfile.TemporaryDirectory() as folder:
            t.save(f"{folder}/tokenizer.json")
            # A text of which nothing is left is refused.
            wanted = [(text, e) for text, e in zip(TEXTS, t.encode_batch(TEXTS, add_special_tokens=False)) if e.ids]
            pathlib.Path(folder, "texts").write_bytes(b"".join(text.encode() + b"\0" for text, _ in wanted))
            ask = pathlib.Path(os.environ["ATTNLAB_BUILD"], "tests", "attn_ask")
            done = subprocess.run([ask, folder, "ids", f"{folder}/texts"], check=False, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            first, *lines = done.stdout.split("\n")[:-1]
            self.assertEqual(len(lines), len(wanted))
            wrong = [(text, line, e.ids) for line, (text, e) in zip(lines, wanted) if [int(id) for id in line.split()] != e.ids]
            self.assertEqual(wrong[:1], [], f"and {len(wrong)} of {len(lines)}")
            return int(first)

    def test_models(self):
        meta = pre_tokenizers.Metaspace(prepend_scheme="always")
        prepended = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        self.same("bytes", byte_level())
        self.same("bytes with merges ignored", edited(byte_level(), lambda file: file["model"].update(ignore_merges=True)))
        self.same("llama, by a normaliser", llama(prepended, pre_tokenizers.Split(" ", "merged_with_previous")))
        self.same("llama, whole texts", llama(prepended))
        self.same("llama, metaspace", llama(None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False)))
        self.same("gemma", llama(normalizers.Replace(" ", "\u2581"), pre_tokenizers.Split(" ", "merged_with_previous")))
        for fuse in False, True:
            self.same(f"unknown, fused: {fuse}", edited(llama(None, meta, True), lambda file, fuse=fuse: file["model"].update(fuse_unk=fuse)))
        t, trainer = bpe(unk_token="<unk>", end_of_word_suffix="</w>", continuing_subword_prefix="##")
        trainer.end_of_word_suffix, trainer.continuing_subword_prefix = "</w>", "##"
        t.pre_tokenizer = pre_tokenizers.Whitespace()
        t.train_from_iterator(TEXTS[:2000], trainer)
        self.same("prefix and suffix", t)
        self.assertEqual(self.same("cased", wordpiece(False)), 2)
        self.same("uncased", wordpiece(True))
        precompiled = normalizers.Sequence([NORMAL["charsmap"], normalizers.Replace(Regex(" {2,}"), " ")])
        for name, normalizer in ("charsmap", precompiled), ("NFKC", normalizers.NFKC()):
            self.same(f"unigram {name}", unigram(normalizer, meta))
        self.same("unigram with bytes", edited(unigram(None, meta), lambda file: file["model"].update(
            byte_fallback=True, vocab=file["model"]["vocab"] + [[f"<0x{b:02X}>", -20.0] for b in range(256)])))

    def test_steps(self):
        base, plain = byte_level(), llama()
        for name, step in PRE.items():
            t = base if name in ("byte level with a blank", "llama3") else plain
            t.pre_tokenizer = step
            self.same(name, t)
        plain.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        for name, step in NORMAL.items():
            plain.normalizer = step
            self.same(name, plain)

    def test_added_tokens(self):
        for normalizer in None, normalizers.Lowercase(), normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]):
            t = llama(None, pre_tokenizers.Metaspace(prepend_scheme="first"))
            t.normalizer = normalizer
            t.add_tokens([AddedToken("<Mask>", lstrip=True, normalized=False), AddedToken("<mask>", rstrip=True, normalized=True),
                          AddedToken("mask", single_word=True, normalized=False), AddedToken("fox", single_word=True, lstrip=True, rstrip=True, normalized=True),
                          AddedToken("Straße", normalized=True), AddedToken("é", normalized=False)])
            self.same(f"added, {normalizer}", t)


if __name__ == "__main__":
    warnings.simplefilter("error")
    unittest.main()
