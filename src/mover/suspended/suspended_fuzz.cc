#include "mover/suspended/suspended_fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "mover/suspended/suspended_file.h"
#include "wire/line.h"

namespace tessera::mover {
namespace {

void Mend(std::vector<std::uint8_t>& bytes) {
  SuspendedHeader header;
  if (bytes.size() < sizeof header) return;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.magic = SuspendedHeader::kMagic;
  header.version = kSuspendedVersion;
  header.chunk_bytes = wire::kChunkBytes;
  header.unit_bytes = wire::kUnitBytes;
  header.file_bytes = bytes.size();
  const std::size_t rest = bytes.size() - sizeof header;
  if (header.chunks <= rest / sizeof(SuspendedChunk)) {
    header.table_checksum =
        ChecksumOf(std::as_bytes(std::span(bytes).subspan(sizeof header, header.chunks * sizeof(SuspendedChunk))));
  }
  header.checksum = 0;
  header.checksum = ChecksumOf(std::as_bytes(std::span(&header, 1)));
  std::memcpy(bytes.data(), &header, sizeof header);
}

}  // namespace

std::string RunSuspendedFile(std::span<const std::uint8_t> bytes, bool mended) {
  std::vector<std::uint8_t> content(bytes.begin(), bytes.end());
  if (mended) Mend(content);
  UniqueFd fd(memfd_create("suspended", MFD_CLOEXEC));
  if (write(fd.Get(), content.data(), content.size()) != static_cast<ssize_t>(content.size())) return "no file";
  const auto file = SuspendedFile::Open(std::move(fd));
  if (!file) return file.error().message.empty() ? "an error without words" : "";
  static std::vector<std::byte> chunk(wire::kChunkBytes);
  std::size_t read = 0;
  for (const SuspendedChunk& each : file->Table()) {
    if (each.offset + each.length > content.size()) return "a chunk lies behind the end";
    if (read++ == 4) break;  // each takes 64 MiB of work
    const auto outcome = file->Read(each, chunk);
    if (!outcome && outcome.error().code != EBADMSG) return outcome.error().Text();
  }
  return "";
}

}  // namespace tessera::mover
