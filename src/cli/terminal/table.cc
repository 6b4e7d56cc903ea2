#include "cli/terminal/table.h"

#include <algorithm>

#include "cli/terminal/printable.h"

namespace tessera::cli {
namespace {

// Columns on the screen: UTF-8 continuation bytes take none.
std::size_t Width(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xc0) != 0x80; });
}

// The first `width` - 1 characters and an ellipsis, or the whole text if it fits.
std::string Cut(const std::string& text, std::size_t width) {
  if (Width(text) <= width) return text;
  std::size_t end = 0;
  for (std::size_t characters = 0; end < text.size(); ++end) {
    if ((static_cast<unsigned char>(text[end]) & 0xc0) != 0x80 && ++characters == width) break;
  }
  return text.substr(0, end) + "…";
}

std::string Line(const std::vector<Column>& columns, const std::vector<std::size_t>& widths,
                 const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::string padding(widths[i] - Width(cells[i]), ' ');
    if (i > 0) line += "  ";
    line += columns[i].align == Align::kRight ? padding + cells[i] : cells[i] + padding;
  }
  line.resize(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

void Table::Add(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = Printable(std::move(cell));
  rows_.push_back(std::move(cells));
}

std::string Table::Text(bool colour, std::size_t width) const {
  std::vector<std::vector<std::string>> rows = rows_;
  std::vector<std::string> titles;
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    titles.push_back(columns_[i].title);
    widths.push_back(Width(columns_[i].title));
    for (auto& row : rows) {
      if (row[i].empty()) row[i] = "-";
      widths[i] = std::max(widths[i], Width(row[i]));
    }
  }
  std::size_t total = columns_.empty() ? 0 : 2 * (columns_.size() - 1);
  for (const std::size_t each : widths) total += each;
  for (std::size_t i = 0; i < columns_.size() && width > 0; ++i) {
    if (!columns_[i].shortens || total <= width) continue;
    const std::size_t least = std::max(kShortest, Width(columns_[i].title));
    const std::size_t cut = std::min(total - width, widths[i] - std::min(widths[i], least));
    widths[i] -= cut;
    total -= cut;
    for (auto& row : rows) row[i] = Cut(row[i], widths[i]);
  }
  const std::string head = Line(columns_, widths, titles);
  std::string text = (colour ? "\033[1m" + head + "\033[0m" : head) + "\n";
  for (const auto& row : rows) text += Line(columns_, widths, row) + "\n";
  return text;
}

}  // namespace tessera::cli
