#pragma once

#include <cstdint>
#include <istream>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tessera::plan {

// A file of comma-separated values (RFC 4180, without line breaks in fields), read row by row: a file may be larger
// than memory. The first row names the columns. Empty lines are passed over, and so are a byte order mark and the CR of
// CRLF. Errors name the file, the line and the column. One thread at a time.
class CsvReader {
 public:
  static constexpr std::size_t kLongestLine = 1 << 20;  // bytes

  // As OpenText and From.
  static Result<CsvReader> Open(const std::string& path);
  // What `text` says; `name` stands for the file in errors. EINVAL if it is empty, is no text, or names a column twice.
  static Result<CsvReader> From(std::unique_ptr<std::istream> text, std::string name);

  const std::vector<std::string>& columns() const { return columns_; }
  bool Has(std::string_view column) const;
  // The column's index. EINVAL: there is none.
  Result<std::size_t> Column(std::string_view name) const;

  // Goes to the next row; false: there is none. EINVAL: a row with too many or too few fields, a wrong quote, a byte 0,
  // or a line beyond kLongestLine; EIO.
  Result<bool> Next();

  // Of the present row; valid until Next.
  const std::string& Field(std::size_t column) const { return fields_[column]; }
  // EINVAL if it is no finite number, ERANGE if it is outside [least, most].
  Result<double> Number(std::size_t column, double least = 0, double most = std::numeric_limits<double>::max()) const;

  // An error of the present row: "FILE:LINE: message".
  std::unexpected<Error> Wrong(int code, const std::string& message, std::string hint = {}) const;
  // The same of one of its fields: "FILE:LINE: COLUMN: "FIELD" message".
  std::unexpected<Error> WrongField(int code, std::size_t column, const std::string& message,
                                    std::string hint = {}) const;
  const std::string& name() const { return name_; }
  std::uint64_t line() const { return line_; }  // from 1

 private:
  CsvReader() = default;
  Result<bool> NextLine();
  bool Fill();
  Result<void> Split();

  std::string name_;
  std::unique_ptr<std::istream> text_;
  std::string buffer_;    // what was read and is not yet used, from `used_` on
  std::size_t used_ = 0;  // of buffer_
  std::string present_;   // the present line
  std::vector<std::string> columns_;
  std::vector<std::string> fields_;
  std::uint64_t line_ = 0;
};

// A file to read. ENOENT and so on; EISDIR: it is a directory. Never null.
Result<std::unique_ptr<std::istream>> OpenText(const std::string& path);

// The begin of a text for a message: at most so many bytes of it, and `?` for what is no UTF-8 or a control character.
std::string Printable(std::string_view text, std::size_t most);
// A piece of a file, quoted: the first 40 bytes.
std::string QuotedPiece(std::string_view text);

}  // namespace tessera::plan
