#include "soft/module/fatbin.h"

#include <gtest/gtest.h>
#include <lz4.h>
#include <zstd.h>

#include <cstring>

namespace tessera::soft {
namespace {

const std::string kPtx = ".version 7.0\n.target sm_70\n.address_size 64\n// " + std::string(200, 'x') + "\n";

template <typename T>
void Append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

enum class Compression { kNone, kLz4, kZstd, kUnknown };

std::string Compress(const std::string& text, Compression compression) {
  std::string out(ZSTD_compressBound(text.size()) + static_cast<std::size_t>(LZ4_compressBound(int(text.size()))),
                  '\0');
  std::size_t size = 0;
  if (compression == Compression::kLz4) {
    size = static_cast<std::size_t>(
        LZ4_compress_default(text.data(), out.data(), static_cast<int>(text.size()), static_cast<int>(out.size())));
  } else {
    size = ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 1);
  }
  out.resize(size);
  return out;
}

// An entry as nvcc writes it.
std::string Entry(std::uint16_t kind, std::uint32_t capability, std::string text,
                  Compression compression = Compression::kNone) {
  text.push_back('\0');
  std::string payload = compression == Compression::kNone ? text : Compress(text, compression);
  const auto compressed = static_cast<std::uint32_t>(payload.size());
  payload.resize((payload.size() + 7) / 8 * 8);
  constexpr std::uint64_t kFlags[] = {0x11, 0x2011, 0x8011, 0x11};
  std::string entry;
  Append(entry, kind);
  Append(entry, std::uint16_t{0x101});
  Append(entry, std::uint32_t{64});
  Append(entry, std::uint64_t{payload.size()});
  Append(entry, compression == Compression::kNone ? 0 : compressed);
  Append(entry, std::uint32_t{0});
  Append(entry, std::uint32_t{0x00070000});
  Append(entry, capability);
  Append(entry, std::uint64_t{0});
  Append(entry, kFlags[static_cast<int>(compression)]);
  Append(entry, std::uint64_t{0});
  Append(entry, compression == Compression::kNone ? std::uint64_t{0} : std::uint64_t{text.size()});
  return entry + payload;
}

std::string Fatbin(const std::string& entries) {
  std::string fatbin;
  Append(fatbin, std::uint32_t{0xba55ed50});
  Append(fatbin, std::uint16_t{1});
  Append(fatbin, std::uint16_t{16});
  Append(fatbin, std::uint64_t{entries.size()});
  return fatbin + entries;
}

TEST(FatbinTest, TextIsPtxItself) { EXPECT_EQ(FindPtx(kPtx.c_str(), 90).value(), kPtx); }

TEST(FatbinTest, ReadsAllCompressionsOfNvcc) {
  for (const auto compression : {Compression::kNone, Compression::kLz4, Compression::kZstd}) {
    const std::string fatbin = Fatbin(Entry(1, 70, kPtx, compression));
    EXPECT_EQ(FindPtx(fatbin.data(), 90).value(), kPtx) << static_cast<int>(compression);
  }
}

TEST(FatbinTest, FollowsTheWrapper) {
  const std::string fatbin = Fatbin(Entry(1, 70, kPtx));
  std::string wrapper;
  Append(wrapper, std::uint32_t{0x466243b1});
  Append(wrapper, std::uint32_t{1});
  Append(wrapper, fatbin.data());
  Append(wrapper, std::uint64_t{0});
  EXPECT_EQ(FindPtx(wrapper.data(), 90).value(), kPtx);
}

TEST(FatbinTest, TakesTheNewestThatTheDeviceMayRun) {
  const std::string fatbin =
      Fatbin(Entry(2, 90,
                   "\x7f"
                   "ELF") +
             Entry(1, 70, kPtx + "old") + Entry(1, 80, kPtx + "new") + Entry(1, 100, kPtx + "newer"));
  EXPECT_EQ(FindPtx(fatbin.data(), 90).value(), kPtx + "new");
  EXPECT_EQ(FindPtx(fatbin.data(), 75).value(), kPtx + "old");
}

TEST(FatbinTest, RefusesWhatHasNoPtx) {
  EXPECT_EQ(FindPtx(Fatbin(Entry(2, 90, "code")).data(), 90).error().code, ENOENT);
  EXPECT_EQ(FindPtx(Fatbin(Entry(1, 100, kPtx)).data(), 90).error().code, ENOENT);
  EXPECT_EQ(FindPtx("\x7f"
                    "ELF code",
                    90)
                .error()
                .code,
            ENOENT);
}

TEST(FatbinTest, RefusesGarbage) {
  EXPECT_EQ(FindPtx("", 90).error().code, EINVAL);
  EXPECT_EQ(FindPtx("hello", 90).error().code, EINVAL);
  EXPECT_EQ(FindPtx(nullptr, 90).error().code, EINVAL);

  std::string beyond = Fatbin(Entry(1, 70, kPtx));
  beyond[16 + 8] = '\xff';  // the payload's size
  EXPECT_EQ(FindPtx(beyond.data(), 90).error().code, EINVAL);

  std::string damaged = Fatbin(Entry(1, 70, kPtx, Compression::kZstd));
  damaged[16 + 64] ^= 1;
  EXPECT_EQ(FindPtx(damaged.data(), 90).error().code, EINVAL);
}

TEST(FatbinTest, RefusesAnUnknownCompressionByName) {
  const auto ptx = FindPtx(Fatbin(Entry(1, 70, kPtx, Compression::kUnknown)).data(), 90);
  ASSERT_FALSE(ptx);
  EXPECT_EQ(ptx.error().code, ENOTSUP);
  EXPECT_NE(ptx.error().Text().find("--no-compress"), std::string::npos);
}

}  // namespace
}  // namespace tessera::soft
