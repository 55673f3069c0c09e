#!/usr/bin/python3
"""wheel.py BUILD FOLDER - packs a build as FOLDER/attnlab-VERSION-py3-none-manylinux_..., and prints its path.

The wheel has the Python module, libattn, the program where the build has it, and in attnlab/bundled/lib the shared
libraries that these need and that are not of glibc, with the licences of their packages: pip installs it on a machine that
has none of them. The platform tag names the glibc that the files ask for. Debian and its kin: dpkg knows the packages.
The same build gives the same bytes."""
import base64
import hashlib
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

GLIBC = re.compile(r"(libc|libm|libpthread|libdl|librt|libresolv|ld-linux-[-\w]+)\.so\.\d+")
MACHINES = {62: "x86_64", 183: "aarch64"}
PT_DYNAMIC, DT_RPATH, DT_RUNPATH = 2, 15, 29


def output(*command, check=True):
    return subprocess.run(command, check=check, stdout=subprocess.PIPE, text=True, env={**os.environ, "LC_ALL": "C"}).stdout


class Build:
    def __init__(self, folder):
        lines = (folder / "CMakeCache.txt").read_text().splitlines()
        self.cache = dict(re.fullmatch(r"([^:]+):\w+=(.*)", line).groups() for line in lines if re.match(r"[^#/:]+:\w+=", line))
        self.folder, self.source = folder, pathlib.Path(self.cache["CMAKE_HOME_DIRECTORY"])
        self.version = self.cache["CMAKE_PROJECT_VERSION"]
        self.compiler = [self.cache.get("CMAKE_C_COMPILER", "aarch64-linux-gnu-gcc")]
        if "CMAKE_C_COMPILER" not in self.cache:  # it is that of cmake/aarch64.cmake
            self.compiler.append(f"--sysroot={self.source / 'build/aarch64'}")

    def needs(self, path):
        """The libraries that a file names, and the versions of glibc that it asks for."""
        text = output(self.cache["CMAKE_READELF"], "-dVW", path)
        return re.findall(r"\(NEEDED\).*\[(.*)\]", text), re.findall(r"Name: GLIBC_([\d.]+) ", text)

    def library(self, name):
        """Where the compiler finds it, whose libraries are those of the machine that the build is for."""
        path = pathlib.Path(output(*self.compiler, f"-print-file-name={name}").strip())
        if not path.is_absolute():
            sys.exit(f"wheel.py: {name} is in no folder of {self.compiler[0]}")
        return path


def search_here(path):
    """Makes a file's RUNPATH an RPATH, which holds for the libraries of its libraries, too: so these stay as they are."""
    data = bytearray(path.read_bytes())
    start, = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    found = False
    for head in range(start, start + size * count, size):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", data, head)
        for at in range(offset, offset + length, 16) if kind == PT_DYNAMIC else ():
            tag, = struct.unpack_from("<q", data, at)
            if tag in (DT_RPATH, DT_RUNPATH):
                struct.pack_into("<q", data, at, DT_RPATH)
                found = True
    if not found:
        sys.exit(f"wheel.py: {path.name} has no RPATH: configure the build with another prefix than /usr")
    path.write_bytes(data)


def bundle(build, lib, files):
    """Copies to lib what the files need, in turn; gives the names, and the glibc that all ask for."""
    names, glibc = set(), (2, 17)
    while files:
        needed, versions = build.needs(files.pop())
        glibc = max([glibc, *(tuple(map(int, version.split("."))) for version in versions)])
        for name in needed:
            if not GLIBC.fullmatch(name) and not (lib / name).exists():
                shutil.copyfile(build.library(name), lib / name)
                names.add(name)
                files.append(lib / name)
    return sorted(names), glibc


def licences(names):
    """{package: its text}, by the owners of files of these names."""
    said = output("dpkg", "-S", *(f"*/{name}" for name in names), check=False)  # a failure is a name that is missing below
    owned = [line.rpartition(": ") for line in said.splitlines()]
    missing = set(names) - {os.path.basename(path) for _, _, path in owned}
    if missing:
        sys.exit(f"wheel.py: no package has {', '.join(sorted(missing))}, and so no licence is known")
    packages = {package.split(":")[0] for packages, _, _ in owned for package in packages.split(", ")}
    return {name: pathlib.Path("/usr/share/doc", name, "copyright").read_bytes() for name in sorted(packages)}


def stage(build, top):
    """The module with its files below top; gives the names of bundled libraries and the platform."""
    module, installed, bundled = top / "attnlab", top / "installed", top / "attnlab/bundled"
    output("cmake", "--install", build.folder, "--prefix", installed, "--component", "runtime", "--strip")
    shutil.copytree(build.source / "core/python/attnlab", module, ignore=shutil.ignore_patterns("__pycache__"))
    library, = (path for path in installed.glob("lib*/**/libattn.so.*") if not path.is_symlink())
    name = re.search(r"SONAME.*\[(.*)\]", output(build.cache["CMAKE_READELF"], "-dW", library))[1]
    lib = bundled / library.parent.relative_to(installed)
    lib.mkdir(parents=True)
    files = [shutil.copyfile(library, lib / name)]
    if (installed / "bin/attnlab").exists():
        (bundled / "bin").mkdir()
        files.append(shutil.copy(installed / "bin/attnlab", bundled / "bin"))
    shutil.rmtree(installed)
    for path in files:
        search_here(pathlib.Path(path))
    names, glibc = bundle(build, lib, files)
    machine, = struct.unpack_from("<H", (lib / name).read_bytes(), 18)
    return names, f"manylinux_{glibc[0]}_{glibc[1]}_{MACHINES[machine]}"


def describe(build, top, names, tag):
    """The folder dist-info, but its RECORD."""
    info = top / f"attnlab-{build.version}.dist-info"
    texts = {"LICENSE": (build.source / "LICENSE").read_bytes(),
             **{f"bundled/{name}.txt": text for name, text in licences(names).items()}}
    for name, text in texts.items():
        path = info / "licenses" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    summary = re.search(r"DESCRIPTION \"(.*)\"", (build.source / "CMakeLists.txt").read_text())[1]
    (info / "METADATA").write_text("\n".join([
        "Metadata-Version: 2.4", "Name: attnlab", f"Version: {build.version}", f"Summary: {summary}",
        "License-Expression: GPL-3.0-or-later", *(f"License-File: {name}" for name in texts), "Requires-Python: >=3.9",
        "Provides-Extra: all", *(f"Requires-Dist: {name}; extra == 'all'" for name in ("numpy", "pandas", "h5py", "matplotlib")),
        "", "attnlab/bundled has copies of these libraries, each under the licence of its package (licenses/bundled):",
        "", *(f"    {name}" for name in names), ""]))
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: attnlab {build.version}\nRoot-Is-Purelib: false\nTag: {tag}\n")
    if (top / "attnlab/bundled/bin").exists():
        (info / "entry_points.txt").write_text("[console_scripts]\nattnlab = attnlab.program:main\n")
    return info


def pack(top, info, wheel):
    record = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        def add(name, data, mode):
            entry = zipfile.ZipInfo(name)  # of 1980
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | mode) << 16
            archive.writestr(entry, data)

        for path in sorted(path for path in top.rglob("*") if path.is_file()):
            name, data = path.relative_to(top).as_posix(), path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}\n")
            add(name, data, 0o755 if path.parent.name == "bin" else 0o644)
        own = f"{info.name}/RECORD"
        add(own, "".join([*record, f"{own},,\n"]), 0o644)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, folder = Build(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="attnlab-") as place:
        names, platform = stage(build, pathlib.Path(place))
        info = describe(build, pathlib.Path(place), names, f"py3-none-{platform}")
        wheel = folder / f"attnlab-{build.version}-py3-none-{platform}.whl"
        pack(pathlib.Path(place), info, wheel)
    print(wheel)


main()
