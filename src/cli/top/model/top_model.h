#pragma once

#include <compare>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/top/model/top_history.h"
#include "cli/top/model/top_snapshot.h"

namespace tessera::cli::top {

// The thing that a row of the list shows, independent of its place in the list.
struct Subject {
  enum Kind { kGpu, kVgpu, kOutside, kProcess } kind = kVgpu;  // kOutside: all processes of a GPU that are in no vGPU
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
SortBy Next(SortBy sort, int step);

// The user's choice of rows and of their order.
struct Arrangement {
  bool tree = true;  // processes under their vGPUs
  SortBy sort = SortBy::kName;
  bool reversed = false;
  std::string filter;  // shows what has this in its name, its vGPU's name or its pid, in capitals or not
};

// The data of the list: the newest snapshot and the minute before it, arranged as the user wants.
class Model {
 public:
  Model() = default;
  Model(const Model&) = delete;  // rows point into the snapshot
  Model& operator=(const Model&) = delete;

  void Take(Snapshot snapshot);
  // Overrides a priority until the next snapshot.
  void SetPriority(const std::string& vgpu, int priority);

  const Snapshot& snapshot() const { return snapshot_; }
  const std::vector<Row>& rows() const { return rows_; }
  // The last minute of the share of a vGPU or process, or of the busy time of a GPU.
  std::vector<std::optional<double>> Minute(const Subject& subject, int pieces) const;

  // The index of the selected row: it follows its subject as long as that is listed. None without rows.
  std::optional<std::size_t> selected() const;
  const Row* selected_row() const;
  void Select(long index);  // the nearest index that exists
  void Move(long rows);

  const Arrangement& arrangement() const { return arrangement_; }
  void Rearrange(const std::function<void(Arrangement&)>& change);

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
  std::size_t selected_index_ = 0;  // stays when the subject is gone
  Arrangement arrangement_;
};

}  // namespace tessera::cli::top
