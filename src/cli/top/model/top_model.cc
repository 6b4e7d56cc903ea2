#include "cli/top/model/top_model.h"

#include <algorithm>
#include <tuple>

namespace tessera::cli::top {
namespace {

std::string Lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

Subject SubjectOf(const Process& process) { return {Subject::kProcess, process.gpu, "", process.pid}; }
Subject SubjectOf(const Vgpu& vgpu) { return {Subject::kVgpu, vgpu.gpu, vgpu.name, 0}; }

// The key to sort a row by. Figures are negated, so that the largest comes first.
std::tuple<double, std::string> SortKey(const Row& row, SortBy sort) {
  const Process* process = row.process;
  const Vgpu* vgpu = row.vgpu;
  const std::string name = process ? process->name : row.subject.vgpu;
  switch (sort) {
    case SortBy::kShare:
      return {process ? -process->work_pct.value_or(-1) : vgpu ? -vgpu->now_pct : 1, name};
    case SortBy::kMemory:
      return {-static_cast<double>(process ? process->resident : vgpu ? vgpu->resident : 0), name};
    case SortBy::kSwapped:
      return {-static_cast<double>(process ? process->swapped : vgpu ? vgpu->swapped : 0), name};
    case SortBy::kPriority:  // the one that goes first
      return {vgpu ? vgpu->priority.value_or(0) : INT32_MAX, name};
    case SortBy::kWeight:
      return {vgpu ? -vgpu->weight : 1, name};
    case SortBy::kState:
      return {0, process ? process->state : vgpu ? vgpu->state : ""};
    case SortBy::kName:
      break;
  }
  return {0, name};
}

}  // namespace

const char* NameOf(SortBy sort) {
  static constexpr const char* kNames[kSortings] = {"name",     "share",  "memory", "swapped",
                                                    "priority", "weight", "state"};
  return kNames[static_cast<int>(sort)];
}

SortBy Next(SortBy sort, int step) {
  return static_cast<SortBy>((static_cast<int>(sort) + step + kSortings) % kSortings);
}

void Model::Take(Snapshot snapshot) {
  const Snapshot before = std::move(snapshot_);
  snapshot_ = std::move(snapshot);
  Remember(before);
  Arrange();
}

void Model::Remember(const Snapshot& before) {
  const Nanos now = snapshot_.at;
  std::map<Subject, const Process*> earlier;
  for (const Process& process : before.processes) earlier[SubjectOf(process)] = &process;
  for (const Gpu& gpu : snapshot_.gpus) histories_[{Subject::kGpu, gpu.index, "", 0}].Add(now, gpu.busy_pct);
  for (const Vgpu& vgpu : snapshot_.vgpus) histories_[SubjectOf(vgpu)].Add(now, vgpu.now_pct);
  for (Process& process : snapshot_.processes) {
    const auto found = earlier.find(SubjectOf(process));
    const auto busy_before = found == earlier.end() ? std::nullopt : found->second->busy_us;
    if (!busy_before || !process.busy_us || now <= before.at) continue;
    // The pid was given to another program, which counts from 0.
    if (*process.busy_us < *busy_before) continue;
    const double busy_us = static_cast<double>(*process.busy_us - *busy_before);
    process.work_pct = std::min(100.0, 100 * busy_us / (static_cast<double>(now - before.at) / kMicrosecond));
    histories_[SubjectOf(process)].Add(now, *process.work_pct);
  }
  std::erase_if(histories_, [now](const auto& entry) { return entry.second.newest() + History::kLength < now; });
}

void Model::SetPriority(const std::string& name, int priority) {
  for (Vgpu& vgpu : snapshot_.vgpus) {
    if (vgpu.name == name) vgpu.priority = priority;
  }
}

std::vector<std::optional<double>> Model::Minute(const Subject& subject, int pieces) const {
  const auto found = histories_.find(subject);
  return found == histories_.end() ? std::vector<std::optional<double>>(std::max(pieces, 0))
                                   : found->second.Pieces(snapshot_.at, pieces);
}

bool Model::Matches(const std::string& text) const {
  return Lower(text).find(Lower(arrangement_.filter)) != std::string::npos;
}

bool Model::Matches(const Process& process) const {
  return Matches(process.name) || Matches(std::to_string(process.pid)) || Matches(process.vgpu);
}

bool Model::Before(const Row& a, const Row& b) const {
  const auto key_a = SortKey(a, arrangement_.sort), key_b = SortKey(b, arrangement_.sort);
  if (key_a != key_b) return (key_a < key_b) != arrangement_.reversed;
  return a.subject < b.subject;
}

std::vector<Row> Model::ProcessRows(const Vgpu* vgpu, int gpu, bool all) const {
  std::vector<Row> rows;
  for (const Process& process : snapshot_.processes) {
    if (process.gpu != gpu || process.vgpu != (vgpu ? vgpu->name : "")) continue;
    if (all || Matches(process)) rows.push_back({SubjectOf(process), vgpu, &process});
  }
  std::ranges::sort(rows, [this](const Row& a, const Row& b) { return Before(a, b); });
  if (!rows.empty()) rows.back().last = true;
  return rows;
}

void Model::ArrangeTree() {
  std::vector<Row> parents;
  for (const Vgpu& vgpu : snapshot_.vgpus) parents.push_back({SubjectOf(vgpu), &vgpu});
  std::ranges::sort(parents, [this](const Row& a, const Row& b) { return Before(a, b); });
  // Processes in no vGPU come last, for each GPU.
  for (const Gpu& gpu : snapshot_.gpus) parents.push_back({{Subject::kOutside, gpu.index, "", 0}});
  for (const Row& parent : parents) {
    const bool matches = parent.vgpu && Matches(parent.vgpu->name);
    const auto children = ProcessRows(parent.vgpu, parent.subject.gpu, matches);
    if (!matches && children.empty()) continue;
    rows_.push_back(parent);
    rows_.insert(rows_.end(), children.begin(), children.end());
  }
}

void Model::Arrange() {
  rows_.clear();
  if (arrangement_.tree) {
    ArrangeTree();
  } else {
    for (const Process& process : snapshot_.processes) {
      if (!Matches(process)) continue;
      const auto vgpu = std::ranges::find(snapshot_.vgpus, process.vgpu, &Vgpu::name);
      rows_.push_back({SubjectOf(process), vgpu == snapshot_.vgpus.end() ? nullptr : &*vgpu, &process});
    }
    std::ranges::sort(rows_, [this](const Row& a, const Row& b) { return Before(a, b); });
  }
  const auto same = std::ranges::find_if(rows_, [this](const Row& row) { return selected_ == row.subject; });
  Select(same != rows_.end() ? same - rows_.begin() : static_cast<long>(selected_index_));
}

std::optional<std::size_t> Model::selected() const {
  if (rows_.empty()) return std::nullopt;
  return selected_index_;
}

const Row* Model::selected_row() const { return rows_.empty() ? nullptr : &rows_[selected_index_]; }

void Model::Select(long index) {
  if (rows_.empty()) return;  // a subject that is filtered out, or missing for now, stays selected
  selected_index_ = static_cast<std::size_t>(std::clamp(index, 0L, static_cast<long>(rows_.size()) - 1));
  selected_ = rows_[selected_index_].subject;
}

void Model::Move(long rows) { Select(static_cast<long>(selected_index_) + rows); }

void Model::Rearrange(const std::function<void(Arrangement&)>& change) {
  change(arrangement_);
  Arrange();
}

}  // namespace tessera::cli::top
