#include "plan/input/csv_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <utility>

#include "base/text/counted.h"
#include "base/text/utf8.h"

namespace tessera::plan {
namespace {

constexpr std::size_t kPiece = 1 << 16;  // bytes that are read at once

std::string Short(double number) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, number).ptr;
  return {text, end};
}

}  // namespace

std::string Printable(std::string_view text, std::size_t most) {
  std::string piece;
  while (!text.empty()) {
    const Utf8Character next = DecodeUtf8(text);
    const std::size_t bytes = std::max<std::size_t>(next.bytes, 1);
    if (piece.size() + bytes > most) return piece + "...";
    const std::string_view letter = text.substr(0, bytes);
    piece += IsPrintableUtf8(letter) ? letter : "?";
    text.remove_prefix(bytes);
  }
  return piece;
}

std::string QuotedPiece(std::string_view text) { return "\"" + Printable(text, 40) + "\""; }

Result<std::unique_ptr<std::istream>> OpenText(const std::string& path) {
  struct stat about{};
  if (stat(path.c_str(), &about) != 0) return FailErrno("cannot read " + path);
  if (S_ISDIR(about.st_mode)) return Fail(EISDIR, path + " is a directory", "name a file");
  auto file = std::make_unique<std::ifstream>(path, std::ios::binary);
  if (!*file) return FailErrno("cannot read " + path);
  return file;
}

Result<CsvReader> CsvReader::Open(const std::string& path) {
  auto file = OpenText(path);
  if (!file) return std::unexpected(file.error());
  return From(*std::move(file), path);
}

Result<CsvReader> CsvReader::From(std::unique_ptr<std::istream> text, std::string name) {
  CsvReader reader;
  reader.name_ = std::move(name);
  reader.text_ = std::move(text);
  const auto found = reader.NextLine();
  if (!found) return std::unexpected(found.error());
  if (!*found) return Fail(EINVAL, reader.name_ + " is empty", "the first line must name the columns");
  if (auto split = reader.Split(); !split) return std::unexpected(split.error());
  reader.columns_ = std::exchange(reader.fields_, {});
  auto sorted = reader.columns_;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    return reader.Wrong(EINVAL, "column " + QuotedPiece(*twice) + " is named twice");
  return reader;
}

bool CsvReader::Has(std::string_view column) const { return std::ranges::find(columns_, column) != columns_.end(); }

Result<std::size_t> CsvReader::Column(std::string_view name) const {
  const auto found = std::ranges::find(columns_, name);
  if (found == columns_.end()) return Fail(EINVAL, name_ + " has no column \"" + std::string(name) + "\"");
  return static_cast<std::size_t>(found - columns_.begin());
}

Result<bool> CsvReader::Next() {
  const auto found = NextLine();
  if (!found || !*found) return found;
  if (auto split = Split(); !split) return std::unexpected(split.error());
  if (fields_.size() != columns_.size()) {
    return Wrong(
        EINVAL, Counted(fields_.size(), "field") + " where the first line names " + Counted(columns_.size(), "column"));
  }
  return true;
}

// Puts the next piece of the file into the buffer, all of which was used; false: there is none, or it cannot be read.
bool CsvReader::Fill() {
  used_ = 0;
  buffer_.resize(kPiece);
  text_->read(buffer_.data(), kPiece);
  buffer_.resize(static_cast<std::size_t>(text_->gcount()));
  return !buffer_.empty();
}

Result<bool> CsvReader::NextLine() {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  for (bool ended = false; !ended;) {
    present_.clear();
    ++line_;
    for (bool whole = false; !whole;) {
      if (used_ == buffer_.size() && !Fill()) {
        if (text_->bad()) return Fail(EIO, "cannot read " + name_);
        ended = true;
        break;
      }
      const std::size_t end = std::min(buffer_.find('\n', used_), buffer_.size());
      present_.append(buffer_, used_, end - used_);
      whole = end < buffer_.size();
      used_ = end + (whole ? 1 : 0);
      if (present_.size() > kLongestLine) return Wrong(EINVAL, "the line is longer than 1 MiB", "is this a CSV file?");
    }
    if (present_.find('\0') != present_.npos) return Wrong(EINVAL, "a byte 0", "is this a CSV file?");
    if (line_ == 1 && present_.starts_with(kByteOrderMark)) present_.erase(0, kByteOrderMark.size());
    if (present_.ends_with('\r')) present_.pop_back();
    if (!present_.empty()) return true;
  }
  return false;
}

Result<void> CsvReader::Split() {
  std::size_t count = 0;
  // Fields keep their memory from row to row.
  const auto begin_field = [&]() -> std::string& {
    if (count == fields_.size()) fields_.emplace_back();
    fields_[count].clear();
    return fields_[count++];
  };
  std::string* field = &begin_field();
  bool quoted = false;
  bool closed = false;  // a quoted field has ended
  for (std::size_t i = 0; i < present_.size(); ++i) {
    const char letter = present_[i];
    if (quoted) {
      if (letter != '"') {
        *field += letter;
      } else if (i + 1 < present_.size() && present_[i + 1] == '"') {
        *field += present_[++i];
      } else {
        quoted = false;
        closed = true;
      }
    } else if (letter == ',') {
      field = &begin_field();
      closed = false;
    } else if (letter == '"' && field->empty() && !closed) {
      quoted = true;
    } else if (letter == '"' || closed) {
      return Wrong(EINVAL, "a quote in the middle of a field");
    } else {
      *field += letter;
    }
  }
  fields_.resize(count);
  if (quoted) return Wrong(EINVAL, "a quote that does not end");
  return {};
}

Result<double> CsvReader::Number(std::size_t column, double least, double most) const {
  const std::string& text = Field(column);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number))
    return WrongField(EINVAL, column, "is not a number");
  if (number < least) return WrongField(ERANGE, column, "is below " + Short(least));
  if (number > most) return WrongField(ERANGE, column, "is above " + Short(most));
  return number;
}

std::unexpected<Error> CsvReader::Wrong(int code, const std::string& message, std::string hint) const {
  return Fail(code, name_ + ":" + std::to_string(line_) + ": " + message, std::move(hint));
}

std::unexpected<Error> CsvReader::WrongField(int code, std::size_t column, const std::string& message,
                                             std::string hint) const {
  return Wrong(code, columns_[column] + ": " + QuotedPiece(fields_[column]) + " " + message, std::move(hint));
}

}  // namespace tessera::plan
