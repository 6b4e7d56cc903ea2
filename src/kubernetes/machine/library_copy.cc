#include "kubernetes/machine/library_copy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"

namespace tessera::kubernetes {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kNameBytes = 8;  // of the digest
constexpr const char* kUnfinished = ".new";

std::string TextOf(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<fs::path> FilesOf(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& each : fs::recursive_directory_iterator(folder, error)) files.push_back(each.path());
  std::ranges::sort(files);
  return files;
}

// Of names, links and contents.
std::string DigestOf(const fs::path& folder) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> digest(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr);
  const auto add = [&](const std::string& text) {
    const std::string size = fmt::format("{} ", text.size());
    EVP_DigestUpdate(digest.get(), size.data(), size.size());
    EVP_DigestUpdate(digest.get(), text.data(), text.size());
  };
  for (const fs::path& file : FilesOf(folder)) {
    add(file.lexically_relative(folder).string());
    if (fs::is_symlink(file))
      add(fs::read_symlink(file).string());
    else if (fs::is_regular_file(file))
      add(TextOf(file));
  }
  unsigned char value[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_DigestFinal_ex(digest.get(), value, &size);
  std::string name;
  for (std::size_t i = 0; i < kNameBytes; ++i) name += fmt::format("{:02x}", value[i]);
  return name;
}

bool ToDisk(const fs::path& file) {
  const UniqueFd open_file(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  return open_file && fsync(open_file.Get()) == 0;
}

Result<void> Put(const fs::path& from, const fs::path& folder, const fs::path& copy) {
  const fs::path unfinished = folder / kUnfinished;
  std::error_code error;
  fs::remove_all(unfinished, error);
  const auto fails = [&](const char* what) {
    return Fail(error.value(), fmt::format("cannot {} {}: {}", what, copy.string(), error.message()),
                "containers get Tessera's libraries from there; make room, and start the driver again");
  };
  fs::create_directories(unfinished / "lib", error);
  if (!error)
    fs::copy(from, unfinished / "lib/tessera", fs::copy_options::recursive | fs::copy_options::copy_symlinks, error);
  if (error) return fails("write");
  std::vector<fs::path> written = FilesOf(unfinished);
  written.push_back(unfinished);
  for (const fs::path& each : written) {
    if (!fs::is_symlink(each) && !ToDisk(each)) return FailErrno("cannot write " + each.string());
  }
  fs::rename(unfinished, copy, error);
  if (error) return fails("make");
  if (!ToDisk(folder)) return FailErrno("cannot write " + folder.string());
  return {};
}

}  // namespace

Result<Installation> CopyLibraries(const Installation& from, const std::string& folder) {
  std::error_code error;
  if (!fs::exists(from.Shim(), error))
    return Fail(EINVAL, from.Shim() + " is missing", "install Tessera again, or use an image that has it");
  Installation copy{folder + "/" + DigestOf(from.Libraries())};
  if (fs::exists(copy.prefix, error)) return copy;
  if (auto put = Put(from.Libraries(), folder, copy.prefix); !put) return std::unexpected(put.error());
  return copy;
}

void RemoveOldCopies(const std::string& folder, const Installation& now,
                     const std::function<bool(const std::string& copy)>& in_use) {
  std::error_code error;
  for (const auto& each : fs::directory_iterator(folder, error)) {
    const std::string copy = each.path().string();
    std::error_code ignored;
    if (copy != now.prefix && !in_use(copy)) fs::remove_all(each.path(), ignored);
  }
}

bool IsCopyInUse(const std::string& copy, const std::string& cdi_dir) {
  const std::string within = "/" + fs::path(copy).filename().string() + "/";
  const auto names_it = [&](const fs::path& file) { return TextOf(file).find(within) != std::string::npos; };
  std::error_code error;
  for (const auto& file : fs::directory_iterator(cdi_dir, error)) {
    if (names_it(file.path())) return true;
  }
  for (const auto& process : fs::directory_iterator("/proc", error)) {
    const std::string pid = process.path().filename();
    const bool numeric = pid.find_first_not_of("0123456789") == std::string::npos;
    if (numeric && names_it(process.path() / "mountinfo")) return true;
  }
  return false;
}

}  // namespace tessera::kubernetes
