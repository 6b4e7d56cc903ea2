#include "soft/module/fatbin.h"

#include <lz4.h>
#include <zstd.h>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace tessera::soft {
namespace {

// The format has no official description. These are the fields that nvcc 11 to 13 write and that open tools which list
// fatbins agree on; all little endian.
constexpr std::uint32_t kWrapperMagic = 0x466243b1;
constexpr std::uint32_t kFatbinMagic = 0xba55ed50;
constexpr std::string_view kElfMagic =
    "\x7f"
    "ELF";

struct Wrapper {
  std::uint32_t magic;
  std::uint32_t version;
  const void* fatbin;
  const void* reserved;
};

struct FatbinHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t header_bytes;
  std::uint64_t bytes;  // that follow the header: entries one after another
};
static_assert(sizeof(FatbinHeader) == 16);

struct EntryHeader {
  std::uint16_t kind;
  std::uint16_t version;
  std::uint32_t header_bytes;  // the payload follows them
  std::uint64_t payload_bytes;
  std::uint32_t compressed_bytes;  // of the payload, the rest is padding; 0 if not compressed
  std::uint32_t options_offset;
  std::uint16_t minor;
  std::uint16_t major;
  std::uint32_t compute_capability;
  std::uint32_t name_offset;
  std::uint32_t name_bytes;
  std::uint64_t flags;
  std::uint64_t reserved;
  std::uint64_t uncompressed_bytes;
};
static_assert(sizeof(EntryHeader) == 64);

constexpr std::uint16_t kKindPtx = 1;
constexpr std::uint64_t kFlagLz4 = 0x2000;   // nvcc up to 12, and --compress-mode=speed
constexpr std::uint64_t kFlagZstd = 0x8000;  // nvcc 13
constexpr std::uint64_t kLongestPtx = 1u << 30;

template <typename T>
T Read(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Texts end with a zero byte, which is counted in the fatbin.
std::string Text(const char* begin, std::size_t bytes) { return {begin, strnlen(begin, bytes)}; }

Result<std::string> Decompress(const EntryHeader& entry, const char* payload) {
  if (entry.uncompressed_bytes > kLongestPtx || entry.compressed_bytes > entry.payload_bytes) {
    return Fail(EINVAL, "fatbin with impossible sizes");
  }
  std::string text(entry.uncompressed_bytes, '\0');
  bool whole = false;
  if (entry.flags & kFlagZstd) {
    whole = ZSTD_decompress(text.data(), text.size(), payload, entry.compressed_bytes) == text.size();
  } else if (entry.flags & kFlagLz4) {
    whole = LZ4_decompress_safe(payload, text.data(), static_cast<int>(entry.compressed_bytes),
                                static_cast<int>(text.size())) == static_cast<int>(text.size());
  } else {
    return Fail(ENOTSUP, "fatbin with a compression that the soft GPU does not know",
                "compile with nvcc --no-compress");
  }
  if (!whole) return Fail(EINVAL, "fatbin that does not decompress");
  return Text(text.data(), text.size());
}

Result<std::string> FindInFatbin(const char* fatbin, int compute_capability) {
  const auto header = Read<FatbinHeader>(fatbin);
  const char* const end = fatbin + header.header_bytes + header.bytes;
  const char* best = nullptr;
  std::uint32_t best_capability = 0;
  for (const char* at = fatbin + header.header_bytes; end - at >= static_cast<std::ptrdiff_t>(sizeof(EntryHeader));) {
    const auto entry = Read<EntryHeader>(at);
    const auto left = static_cast<std::uint64_t>(end - at);
    if (entry.header_bytes < sizeof(EntryHeader) || entry.header_bytes > left ||
        entry.payload_bytes > left - entry.header_bytes) {
      return Fail(EINVAL, "fatbin with an entry beyond its end");
    }
    if (entry.kind == kKindPtx && entry.compute_capability <= static_cast<std::uint32_t>(compute_capability) &&
        entry.compute_capability >= best_capability) {
      best = at;
      best_capability = entry.compute_capability;
    }
    at += entry.header_bytes + entry.payload_bytes;
  }
  if (best == nullptr) {
    return Fail(ENOENT, "fatbin without PTX that the soft GPU may run",
                "compile with nvcc -gencode arch=compute_80,code=compute_80");
  }
  const auto entry = Read<EntryHeader>(best);
  const char* payload = best + entry.header_bytes;
  if (entry.compressed_bytes != 0) return Decompress(entry, payload);
  return Text(payload, entry.payload_bytes);
}

}  // namespace

Result<std::string> FindPtx(const void* image, int compute_capability) {
  if (image == nullptr) return Fail(EINVAL, "no image");
  const char* bytes = static_cast<const char*>(image);
  // A text may be shorter than a magic number: look at it byte by byte first.
  const std::size_t readable = strnlen(bytes, 4);
  if (readable == 4) {
    const auto magic = Read<std::uint32_t>(bytes);
    if (magic == kWrapperMagic) {
      const auto wrapper = Read<Wrapper>(bytes);
      return FindPtx(wrapper.fatbin, compute_capability);
    }
    if (magic == kFatbinMagic) return FindInFatbin(bytes, compute_capability);
    if (std::string_view(bytes, 4) == kElfMagic) {
      return Fail(ENOENT, "the image is machine code of a real GPU (cubin)",
                  "give the soft GPU PTX or a fatbin with PTX");
    }
  }
  std::string text(bytes);
  if (text.find(".version") == std::string::npos) return Fail(EINVAL, "the image is neither PTX nor a fatbin");
  return text;
}

}  // namespace tessera::soft
