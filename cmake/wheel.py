#!/usr/bin/python3
"""wheel.py BUILD FOLDER - packs a build as FOLDER/attnlab-VERSION-py3-none-manylinux_..., and prints its path.

The wheel has the Python module, libattn, the program where the build has it, and in attnlab/bundled/lib the shared
libraries that these need and that are not of glibc, with the licences of their packages: pip installs it on a machine that
has none of them. The platform tag names the glibc that the files ask for. Needs Debian or its kin, whose packages dpkg
knows, with patchelf and python3-wheel. The same build gives the same bytes."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SYSTEM = re.compile(r"(libc|libm|libpthread|libdl|librt|libresolv|ld-linux[-\w]+)\.so\.\d+")
METADATA = """Metadata-Version: 2.4
Name: attnlab
Version: {version}
Summary: {summary}
License-Expression: GPL-3.0-or-later
{licences}
Requires-Python: >=3.9
Provides-Extra: all
Requires-Dist: numpy; extra == 'all'
Requires-Dist: pandas; extra == 'all'
Requires-Dist: h5py; extra == 'all'
Requires-Dist: matplotlib; extra == 'all'

attnlab/bundled has copies of these libraries, each under the licence of its package (licenses/bundled):

{libraries}
"""


def output(*command, check=True):
    environment = {**os.environ, "LC_ALL": "C", "SOURCE_DATE_EPOCH": "315532800"}  # that of zip archives begins in 1980
    return subprocess.run(command, check=check, stdout=subprocess.PIPE, text=True, env=environment).stdout


def bundle(files, lib, cache):
    """Copies to lib what the files need, in turn; gives the names, and the platform that all ask for."""
    # What names no compiler is built by cmake/aarch64.cmake.
    compiler = [cache["CMAKE_C_COMPILER"]] if "CMAKE_C_COMPILER" in cache else [
        "aarch64-linux-gnu-gcc", f"--sysroot={cache['CMAKE_HOME_DIRECTORY']}/build/aarch64"]
    names, glibc = set(), (2, 17)
    while files:
        text = output(cache["CMAKE_READELF"], "-dVW", files.pop())
        glibc = max([glibc, *(tuple(map(int, version.split("."))) for version in re.findall(r"Name: GLIBC_([\d.]+) ", text))])
        for name in re.findall(r"\(NEEDED\).*\[(.*)\]", text):
            if not SYSTEM.fullmatch(name) and not (lib / name).exists():
                path = output(*compiler, f"-print-file-name={name}").strip()
                if not os.path.isabs(path):
                    sys.exit(f"wheel.py: {name} is in no folder of {compiler[0]}")
                files.append(shutil.copyfile(path, lib / name))
                names.add(name)
    return sorted(names), f"manylinux_{glibc[0]}_{glibc[1]}_" + output(*compiler, "-dumpmachine").partition("-")[0]


def licences(names):
    """{package: its text}, by the owners of files of these names."""
    said = output("dpkg", "-S", *(f"*/{name}" for name in names), check=False)  # a failure is a name that is missing below
    owned = [line.rpartition(": ") for line in said.splitlines()]
    missing = set(names) - {os.path.basename(path) for _, _, path in owned}
    if missing:
        sys.exit(f"wheel.py: no package has {', '.join(sorted(missing))}, and so no licence is known")
    packages = {package.split(":")[0] for packages, _, _ in owned for package in packages.split(", ")}
    return {name: pathlib.Path("/usr/share/doc", name, "copyright").read_bytes() for name in sorted(packages)}


def stage(build, top, cache):
    """What the wheel has, below top; gives its platform."""
    source, version, module = pathlib.Path(cache["CMAKE_HOME_DIRECTORY"]), cache["CMAKE_PROJECT_VERSION"], top / "attnlab"
    shutil.copytree(source / "core/python/attnlab", module, ignore=shutil.ignore_patterns("__pycache__"))
    files, info = [], top / f"attnlab-{version}.dist-info"
    for built, name in (build / "core/libattn.so", None), (build / "experiments/attnlab", "attnlab"):
        if built.exists():
            path = module / ("bundled/bin" if name else "bundled/lib") / (name or output("patchelf", "--print-soname", built).strip())
            path.parent.mkdir(parents=True)
            output(cache["CMAKE_STRIP"], "-o", path, built)
            # Unlike a RUNPATH it holds for the libraries of its libraries, too, which stay as they are.
            output("patchelf", "--force-rpath", "--set-rpath", "$ORIGIN/../lib", path)
            files.append(path)
    names, platform = bundle(files, module / "bundled/lib", cache)
    texts = {"LICENSE": (source / "LICENSE").read_bytes(), **{f"bundled/{name}.txt": text for name, text in licences(names).items()}}
    (info / "licenses/bundled").mkdir(parents=True)
    for name, text in texts.items():
        (info / "licenses" / name).write_bytes(text)
    (info / "METADATA").write_text(METADATA.format(
        version=version, summary=re.search(r"DESCRIPTION \"(.*)\"", (source / "CMakeLists.txt").read_text())[1],
        licences="\n".join(f"License-File: {name}" for name in texts), libraries="\n".join(f"    {name}" for name in names)))
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: attnlab {version}\nRoot-Is-Purelib: false\n"
                                f"Tag: py3-none-{platform}\n")
    if (module / "bundled/bin").exists():
        (info / "entry_points.txt").write_text("[console_scripts]\nattnlab = attnlab.program:main\n")
    return f"attnlab-{version}-py3-none-{platform}.whl"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, folder = (pathlib.Path(x).resolve() for x in sys.argv[1:])
    cache = dict(re.findall(r"^([^#/:\s]+):\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M))
    with tempfile.TemporaryDirectory(prefix="attnlab-") as place:
        wheel = stage(build, pathlib.Path(place), cache)
        output(sys.executable, "-m", "wheel", "pack", place, "--dest-dir", folder)
    print(folder / wheel)


main()
