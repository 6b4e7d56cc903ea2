"""What an ELF file of 64 bits asks of other libraries and offers to others, symbol by symbol."""
import dataclasses
import struct

DYNSYM, DYNAMIC, VERDEF, VERNEED, VERSYM = 11, 6, 0x6ffffffd, 0x6ffffffe, 0x6fffffff  # types of sections
NEEDED, SONAME, RPATH, RUNPATH = 1, 14, 15, 29  # tags of the dynamic section
INTERPRETER = 3  # type of a segment
UNVERSIONED = 1  # index of a symbol that asks for no version
HIDDEN = 0x8000  # such a version of a symbol is only for those that ask for it
WEAK_BINDING = 2


class NotElf(Exception):
    """The file is none, or one that this module does not read."""


@dataclasses.dataclass
class Version:
    """A version that the file asks a library for. `position`: of its record in the file; `before`: of the field that
    leads to it."""
    index: int
    library: str
    name: str
    position: int
    before: int


@dataclasses.dataclass
class Symbol:
    """`version`: a Version of an undefined symbol, the name of one for a defined symbol, None where it has none."""
    name: str
    version: object
    index: int
    weak: bool


class ElfFile:
    """The parts that a linker reads at run time, as they are in the file when it is opened."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            self.data = file.read()
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise NotElf(f"{path}: no 64-bit little-endian ELF file")
        self.sections = self._read_sections()
        self.interpreter = self._read_interpreter()
        dynamic = self._read_dynamic()
        self.needed = [value for tag, value in dynamic if tag == NEEDED]
        self.soname = next((value for tag, value in dynamic if tag == SONAME), None)
        self.runpath = next((value for tag, value in dynamic if tag in (RUNPATH, RPATH)), "")
        self.versions = self._read_needed_versions()
        self.provided_versions = self._read_provided_versions()
        self.undefined, self.defined = self._read_symbols()

    def section(self, kind):
        """(offset, size, offset of its strings) or None."""
        return next(((offset, size, self.sections[link][1]) for found, offset, size, link in self.sections if found == kind), None)

    def _read_sections(self):
        table, = struct.unpack_from("<Q", self.data, 40)
        size, count = struct.unpack_from("<HH", self.data, 58)
        headers = [struct.unpack_from("<IIQQQQIIQQ", self.data, table + i * size) for i in range(count)]
        return [(header[1], header[4], header[5], header[6]) for header in headers]

    def _read_interpreter(self):
        table, = struct.unpack_from("<Q", self.data, 32)
        size, count = struct.unpack_from("<HH", self.data, 54)
        for i in range(count):
            kind, _, offset = struct.unpack_from("<IIQ", self.data, table + i * size)
            if kind == INTERPRETER:
                return self._text(offset)
        return None

    def _text(self, offset):
        return self.data[offset:self.data.index(b"\0", offset)].decode()

    def _read_dynamic(self):
        found = self.section(DYNAMIC)
        if not found:
            raise NotElf(f"{self.path}: not linked dynamically")
        offset, size, strings = found
        tags = struct.iter_unpack("<qQ", self.data[offset:offset + size])
        return [(tag, self._text(strings + value)) for tag, value in tags if tag in (NEEDED, SONAME, RPATH, RUNPATH)]

    def _read_needed_versions(self):
        found, versions = self.section(VERNEED), []
        library_at = found and found[0]
        while library_at:
            _, _, name, first, following = struct.unpack_from("<HHIII", self.data, library_at)
            library, before, at = self._text(found[2] + name), library_at + 8, library_at + first
            while True:
                _, _, index, name, distance = struct.unpack_from("<IHHII", self.data, at)
                versions.append(Version(index & ~HIDDEN, library, self._text(found[2] + name), at, before))
                if not distance:
                    break
                before, at = at + 12, at + distance
            library_at = library_at + following if following else 0
        return versions

    def _read_provided_versions(self):
        """Their names by index; the first is the file's own name."""
        found, versions = self.section(VERDEF), {}
        at = found and found[0]
        while at:
            _, _, index, _, _, first, following = struct.unpack_from("<HHHHIII", self.data, at)
            name, = struct.unpack_from("<I", self.data, at + first)
            versions[index & ~HIDDEN] = self._text(found[2] + name)
            at = at + following if following else 0
        return versions

    def _read_symbols(self):
        undefined, defined = [], []
        found, indexes = self.section(DYNSYM), self.section(VERSYM)
        if not found:
            return undefined, defined
        offset, size, strings = found
        asked = {version.index: version for version in self.versions}
        entries = struct.iter_unpack("<IBBHQQ", self.data[offset:offset + size])
        for i, (name, info, _, section, _, _) in enumerate(entries):
            if i == 0:
                continue
            index = struct.unpack_from("<H", self.data, indexes[0] + 2 * i)[0] & ~HIDDEN if indexes else UNVERSIONED
            table = asked if section == 0 else self.provided_versions
            version = table.get(index) if index > UNVERSIONED else None
            symbol = Symbol(self._text(strings + name), version, i, info >> 4 == WEAK_BINDING)
            (undefined if section == 0 else defined).append(symbol)
        return undefined, defined
