#pragma once

#include <compare>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/top/top_history.h"
#include "cli/top/top_snapshot.h"

namespace tessera::cli::top {

// Who a line of the list is about, whatever place it has.
struct Subject {
  enum Kind { kGpu, kVgpu, kOutside, kProcess } kind = kVgpu;  // kOutside: all that run on a GPU in no vGPU
  int gpu = 0;
  std::string vgpu;
  int pid = 0;

  auto operator<=>(const Subject&) const = default;
};

struct Row {
  Subject subject;
  const Vgpu* vgpu = nullptr;        // of a process: the one it is in, if any
  const Process* process = nullptr;  // of a process
  bool last = false;                 // of the processes under its vGPU
};

enum class SortBy { kName, kShare, kMemory, kSwapped, kPriority, kWeight, kState };
inline constexpr int kSortings = 7;
const char* NameOf(SortBy sort);

// What is to be shown: the newest snapshot and the minute before it, in the order and choice of the user.
class Model {
 public:
  Model() = default;
  Model(const Model&) = delete;  // rows point into the snapshot
  Model& operator=(const Model&) = delete;

  void Take(Snapshot snapshot);
  // Until the next snapshot tells.
  void SetPriority(const std::string& vgpu, int priority);

  const Snapshot& snapshot() const { return snapshot_; }
  const std::vector<Row>& rows() const { return rows_; }
  // One of a vGPU, of a process, or of a GPU (whose busy time it is).
  std::vector<std::optional<double>> Minute(const Subject& subject, int pieces) const;

  // Which of the rows is selected: the one of the same subject, as long as there is one. None without rows.
  std::optional<std::size_t> selected() const;
  const Row* selected_row() const;
  void Select(long index);  // the nearest there is
  void Move(long rows);

  bool tree() const { return tree_; }
  void SetTree(bool tree);
  SortBy sort() const { return sort_; }
  bool reversed() const { return reversed_; }
  void SortByNext(int step);
  void Reverse();
  // What has this in its name, its vGPU's name or its pid is shown, in capitals or not.
  const std::string& filter() const { return filter_; }
  void SetFilter(const std::string& filter);

 private:
  void Arrange();
  void ArrangeTree();
  bool Matches(const Process& process) const;
  bool Matches(const std::string& text) const;
  std::vector<Row> ProcessRows(const Vgpu* vgpu, int gpu, bool all) const;
  bool Before(const Row& a, const Row& b) const;
  void Remember(const Snapshot& before);

  Snapshot snapshot_;
  std::map<Subject, History> histories_;
  std::vector<Row> rows_;
  std::optional<Subject> selected_;
  std::size_t selected_index_ = 0;  // where it was, for when it is gone
  bool tree_ = true;
  SortBy sort_ = SortBy::kName;
  bool reversed_ = false;
  std::string filter_;
};

}  // namespace tessera::cli::top
