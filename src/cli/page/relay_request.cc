#include "cli/page/relay_request.h"

#include <strings.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace tessera::cli {
namespace {

std::unexpected<Error> NoRequest() { return Fail(EINVAL, "this is no request of a browser"); }

// Its lines without their ends. Nothing if one of them could be read in more ways than one.
std::vector<std::string> LinesOf(std::string_view head) {
  std::vector<std::string> lines;
  while (!head.starts_with("\r\n")) {
    const std::size_t end = head.find("\r\n");
    if (end == head.npos) return {};
    const std::string_view line = head.substr(0, end);
    // A header may not go on in the next line.
    const bool plain = std::ranges::all_of(line, [](char c) { return static_cast<unsigned char>(c) >= ' '; });
    if (!plain || line.starts_with(' ')) return {};
    lines.emplace_back(line);
    head.remove_prefix(end + 2);
  }
  return lines;
}

// "/", "/page/NAME" and "/healthz", letter by letter: nothing in them can be read as another path.
bool IsFree(const std::string& request) {
  const auto first = request.find(' '), second = request.find(' ', first + 1);
  const std::string method = request.substr(0, first), path = request.substr(first + 1, second - first - 1);
  if (method != "GET" && method != "HEAD") return false;
  if (path == "/" || path == "/healthz") return true;
  constexpr std::string_view kFolder = "/page/";
  return path.starts_with(kFolder) && path.find("..") == path.npos &&
         path.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789._-", kFolder.size()) == path.npos;
}

// "METHOD PATH HTTP/1.1", and nothing more.
bool IsRequest(const std::string& line) {
  return std::ranges::count(line, ' ') == 2 && (line.ends_with(" HTTP/1.1") || line.ends_with(" HTTP/1.0")) &&
         line[0] >= 'A' && line[0] <= 'Z' && line.find(" /") != line.npos;
}

// Whether a header has this name.
bool Is(const std::string& line, std::string_view name) {
  return line.size() > name.size() && line[name.size()] == ':' &&
         strncasecmp(line.data(), name.data(), name.size()) == 0;
}

bool Same(std::string_view given, std::string_view wanted) {
  unsigned char differs = given.size() != wanted.size();
  for (std::size_t i = 0; i < wanted.size(); ++i)
    differs |= static_cast<unsigned char>(wanted[i] ^ (i < given.size() ? given[i] : '\0'));
  return differs == 0;
}

}  // namespace

Result<std::string> ForwardedHead(const std::string& head, const std::string& token) {
  const std::vector<std::string> lines = LinesOf(head);
  if (lines.empty() || !IsRequest(lines[0])) return NoRequest();
  constexpr std::string_view kName = "Authorization";
  std::string forwarded;
  bool has_token = false;
  for (const std::string& line : lines) {
    if (Is(line, kName)) {
      const std::size_t value = std::min(line.find_first_not_of(' ', kName.size() + 1), line.size());
      has_token = Same(std::string_view(line).substr(value), "Bearer " + token);
    } else {
      forwarded += line + "\r\n";
    }
  }
  if (!has_token && !IsFree(lines[0]))
    return Fail(EACCES, "token missing or wrong", "open the address that 'tessera page' says, as a whole");
  return forwarded + "\r\n";
}

std::string RefusalOf(const Error& error) {
  const bool away = error.code == ECONNREFUSED;
  const char* status = error.code == EACCES ? "401 Unauthorized" : away ? "503 Service Unavailable" : "400 Bad Request";
  const nlohmann::json problem = {
      {"type", "about:blank"},       {"title", status + 4},
      {"status", std::stoi(status)}, {"detail", error.message},
      {"hint", error.hint},          {"code", error.code == EACCES ? "EACCES" : away ? "ESHUTDOWN" : "EINVAL"}};
  const std::string body = problem.dump() + "\n";
  return std::string("HTTP/1.1 ") + status +
         "\r\nContent-Type: application/problem+json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n" + body;
}

}  // namespace tessera::cli
