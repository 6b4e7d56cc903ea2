#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tessera::cli {

enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kLeft;
  bool shortens = false;  // its cells may be cut if the table is wider than the terminal
};

// Table of text for people: aligned rows under titles. Columns are two spaces apart; no line ends in spaces.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as there are columns. An empty cell is shown as "-", control characters as "?".
  void Add(std::vector<std::string> cells);
  // All lines, each with its newline. Titles are bold with `colour`. With a `width` (0: any), the cells of the column
  // that shortens are cut to at least kShortest characters, so that lines fit into that width if possible.
  std::string Text(bool colour, std::size_t width = 0) const;

  static constexpr std::size_t kShortest = 8;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tessera::cli
