#include "server/config/account_names.h"

#include <grp.h>
#include <pwd.h>

#include <cerrno>
#include <charconv>
#include <vector>

namespace tessera::server {
namespace {

std::optional<unsigned> NumberIn(const std::string& text) {
  unsigned number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

// `ask` is getpwnam_r(3) or getgrnam_r(3), which say ERANGE where the buffer is too small.
template <typename Entry, typename Ask>
bool Look(const std::string& name, Ask ask, Entry& entry) {
  std::vector<char> buffer(4096);
  Entry* found = nullptr;
  while (ask(name.c_str(), &entry, buffer.data(), buffer.size(), &found) == ERANGE && buffer.size() < (1u << 24))
    buffer.resize(buffer.size() * 2);
  return found != nullptr;
}

}  // namespace

std::optional<uid_t> UserNumber(const std::string& name) {
  if (auto number = NumberIn(name)) return number;
  passwd entry{};
  return Look(name, getpwnam_r, entry) ? std::optional(entry.pw_uid) : std::nullopt;
}

std::optional<gid_t> GroupNumber(const std::string& name) {
  if (auto number = NumberIn(name)) return number;
  group entry{};
  return Look(name, getgrnam_r, entry) ? std::optional(entry.gr_gid) : std::nullopt;
}

}  // namespace tessera::server
