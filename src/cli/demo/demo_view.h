#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace tessera::cli {

// The figures of a program of the demo at a moment.
struct DemoRow {
  std::string name;
  double target_pct = 0;
  std::optional<double> now_pct;  // over the last second
  std::uint64_t memory_bytes = 0;
  std::uint64_t memory_max_bytes = 0;
};

// The progress of the demo: a table that is redrawn on a terminal, a line a second elsewhere, nothing when silent.
class DemoView {
 public:
  DemoView(bool silent, bool terminal) : silent_(silent), live_(!silent && terminal), begin_(MonotonicNow()) {}

  void Note(const std::string& text);  // something happened
  bool Due() const;                    // whether it is time for the next Show
  void Show(const std::vector<DemoRow>& rows);

 private:
  std::string Seconds() const;
  void Erase();  // the table of the last Show

  const bool silent_;
  const bool live_;
  const Nanos begin_;
  Nanos shown_ = 0;
  int lines_ = 0;  // of the table on the screen
};

// A bar of `width` characters for 0 to 100 %, filled to the eighth of a character.
std::string Bar(double percent, int width);

}  // namespace tessera::cli
