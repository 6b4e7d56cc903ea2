#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tessera::cli {

enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kLeft;
  bool shortens = false;  // its cells may be cut where the table is too wide for a terminal
};

// Rows of text under titles, aligned, for people. Columns are two spaces apart; no line ends in spaces.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as there are columns. An empty cell is shown as "-".
  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Each line with its newline. Titles are bold with `colour`. With a `width` (0: any), the cells of the column that
  // shortens are cut to as little as kShortest characters, so that lines are no longer than that if that is enough.
  std::string Text(bool colour, std::size_t width = 0) const;

  static constexpr std::size_t kShortest = 8;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tessera::cli
