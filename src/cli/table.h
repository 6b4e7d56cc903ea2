#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kLeft;
};

// Rows of text under titles, aligned, for people. Columns are two spaces apart; no line ends in spaces.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as there are columns. An empty cell is shown as "-".
  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Each line with its newline. Titles are bold with `colour`.
  std::string Text(bool colour) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tessera::cli
