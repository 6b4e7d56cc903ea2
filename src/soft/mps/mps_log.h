#pragma once

#include <string>

namespace tessera::soft {

// A log in the real one's format, one line each: "[2026-01-31 12:00:00.123 Control 4711] text". Opened for each line,
// so that it may be moved away; what cannot be written is lost. Any process and thread may append.
class MpsLog {
 public:
  // `who` is the word in the brackets: "Control", or "Other" in a server's log.
  MpsLog(std::string path, std::string who) : path_(std::move(path)), who_(std::move(who)) {}

  void Write(const std::string& text) const;

 private:
  std::string path_;
  std::string who_;
};

}  // namespace tessera::soft
