#include "face/files/file_tree.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "face/files/file_value.h"
#include "face/files/process_files.h"
#include "face/files/vgpu_files.h"

namespace tessera::face {
namespace {

using server::Control;
using server::ProcessReport;
using server::VGpuReport;

constexpr mode_t kReadOnlyDirectory = S_IFDIR | 0555, kDirectory = S_IFDIR | 0755;
// processes/<pid>/<gpu>/<file> is the longest.
constexpr std::size_t kDeepest = 4;

std::unexpected<Error> NotThere(std::string_view path) {
  return Fail(ENOENT, fmt::format("no such file: {}", path), "docs/files.md lists the files");
}

// The components of a path, none of them empty.
std::vector<std::string_view> Split(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    if (end > 0) parts.push_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return parts;
}

// A number as directories spell it: "7", not "007".
template <typename Number>
std::optional<Number> NumberOf(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || std::to_string(number) != text) return {};
  return number;
}

template <typename File>
const File* FileNamed(std::span<const File> files, std::string_view name) {
  const auto found = std::ranges::find(files, name, &File::name);
  return found == files.end() ? nullptr : &*found;
}

enum class Kind { kRoot, kProcesses, kProcessList, kProcess, kGpu, kProcessFile, kVGpus, kVGpu, kVGpuFile };

// The thing that a path names, with its present state.
struct Place {
  Kind kind = Kind::kRoot;
  std::vector<ProcessReport> uses;  // kProcess: on each GPU; kGpu, kProcessFile: the one
  const ProcessFile* process_file = nullptr;
  VGpuReport vgpu;
  const VGpuFile* vgpu_file = nullptr;
};

Result<Place> FindProcess(Control& control, std::span<const std::string_view> parts, std::string_view path) {
  if (parts.size() == 1) return Place{.kind = Kind::kProcesses};
  if (parts.size() == 2 && parts[1] == "list") return Place{.kind = Kind::kProcessList};
  const auto pid = NumberOf<pid_t>(parts[1]);
  if (!pid) return NotThere(path);
  Place place{.kind = parts.size() == 2 ? Kind::kProcess : parts.size() == 3 ? Kind::kGpu : Kind::kProcessFile};
  if (parts.size() == 4) {
    place.process_file = FileNamed(ProcessFiles(), parts[3]);
    if (!place.process_file) return NotThere(path);
  }
  auto processes = control.Processes(pid, server::Control::Devices::kLastAnswer);
  if (!processes) return std::unexpected(processes.error());
  const auto gpu = parts.size() > 2 ? NumberOf<std::uint32_t>(parts[2]) : std::nullopt;
  if (parts.size() > 2 && !gpu) return NotThere(path);
  for (ProcessReport& process : *processes) {
    if (!gpu || process.gpu == *gpu) place.uses.push_back(std::move(process));
  }
  if (place.uses.empty()) return NotThere(path);
  return place;
}

Result<Place> FindVGpu(Control& control, std::span<const std::string_view> parts, std::string_view path) {
  if (parts.size() == 1) return Place{.kind = Kind::kVGpus};
  if (parts.size() > 3) return NotThere(path);
  Place place{.kind = parts.size() == 2 ? Kind::kVGpu : Kind::kVGpuFile};
  if (parts.size() == 3) {
    place.vgpu_file = FileNamed(VGpuFiles(), parts[2]);
    if (!place.vgpu_file) return NotThere(path);
  }
  auto vgpu = control.VGpuNamed(std::string(parts[1]));
  if (!vgpu) return std::unexpected(vgpu.error());
  place.vgpu = std::move(*vgpu);
  return place;
}

Result<Place> PlaceOf(Control& control, std::string_view path) {
  const auto parts = Split(path);
  if (parts.empty()) return Place{};
  if (parts.size() > kDeepest) return NotThere(path);
  if (parts[0] == "processes") return FindProcess(control, parts, path);
  if (parts[0] == "vgpus") return FindVGpu(control, parts, path);
  return NotThere(path);
}

template <typename File>
std::vector<std::string> NamesOf(std::span<const File> files) {
  std::vector<std::string> names;
  for (const File& file : files) names.emplace_back(file.name);
  return names;
}

template <typename Report>
Result<std::vector<std::string>> NamesOf(const Result<std::vector<Report>>& reports,
                                         std::string (*name)(const Report&)) {
  if (!reports) return std::unexpected(reports.error());
  std::vector<std::string> names;
  for (const Report& report : *reports) names.push_back(name(report));
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

// The vGPU's owner, or the process's user; the daemon's user for other things.
uid_t OwnerOf(const Place& place) {
  if (place.kind == Kind::kVGpu || place.kind == Kind::kVGpuFile) return place.vgpu.uid;
  return place.uses.empty() ? geteuid() : place.uses[0].uid.value_or(geteuid());
}

FileTree::Attributes::Others OthersOf(const Place& place) {
  using enum FileTree::Attributes::Others;
  if (place.kind == Kind::kVGpu || place.kind == Kind::kVGpuFile) return place.vgpu.for_everybody ? kRead : kNone;
  return place.uses.empty() ? kAll : kNone;
}

bool IsVGpuPath(std::string_view path) {
  const auto parts = Split(path);
  return parts.size() == 2 && parts[0] == "vgpus";
}

}  // namespace

FileTree FileTree::For(server::Control control) const {
  FileTree other(std::move(control));
  other.known_ = known_;
  return other;
}

// The kernel asks this for each component of each path, again and again.
Result<FileTree::Attributes> FileTree::Look(std::string_view path) {
  constexpr std::size_t kMostKnown = 10'000;
  const std::uint64_t changes = control_.VGpuChanges();
  const server::Caller& caller = control_.Who();
  const std::string key = (caller.IsOperator() ? "" : std::to_string(caller.uid)) + std::string(path);
  {
    const MutexLock lock(known_->mutex);
    auto& all = known_->attributes;
    if (std::exchange(known_->changes, changes) != changes || all.size() > kMostKnown) all.clear();
    if (const auto known = all.find(key); known != all.end()) return known->second;
  }
  auto attributes = Find(path);
  // Nothing notifies this class of the end of a process, so those are not cached.
  if (attributes && path.starts_with("/vgpus")) {
    const MutexLock lock(known_->mutex);
    if (known_->changes == changes && control_.VGpuChanges() == changes) known_->attributes.emplace(key, *attributes);
  }
  return attributes;
}

Result<FileTree::Attributes> FileTree::Find(std::string_view path) {
  auto place = PlaceOf(control_, path);
  if (!place) return std::unexpected(place.error());
  Attributes attributes{.mode = kReadOnlyDirectory, .uid = OwnerOf(*place), .others = OthersOf(*place)};
  if (place->kind == Kind::kVGpus) attributes.mode = kDirectory;
  if (place->kind == Kind::kProcessList) attributes.mode = S_IFREG | 0444;
  if (place->kind == Kind::kProcessFile) attributes.mode = S_IFREG | place->process_file->mode;
  if (place->kind == Kind::kVGpuFile) {
    attributes.mode = S_IFREG | place->vgpu_file->mode;
    attributes.tells = place->vgpu_file->tells;
  }
  return attributes;
}

Result<std::vector<std::string>> FileTree::List(std::string_view path) {
  auto place = PlaceOf(control_, path);
  if (!place) return std::unexpected(place.error());
  switch (place->kind) {
    case Kind::kRoot:
      return std::vector<std::string>{"processes", "vgpus"};
    case Kind::kProcesses: {
      auto names = NamesOf<ProcessReport>(control_.Processes(), [](const auto& p) { return std::to_string(p.pid); });
      if (names) names->insert(names->begin(), "list");
      return names;
    }
    case Kind::kProcess:
      return NamesOf<ProcessReport>(std::move(place->uses), [](const auto& p) { return std::to_string(p.gpu); });
    case Kind::kGpu:
      return NamesOf(ProcessFiles());
    case Kind::kVGpus:
      return NamesOf<VGpuReport>(control_.VGpus(), [](const auto& vgpu) { return vgpu.name; });
    case Kind::kVGpu:
      return NamesOf(VGpuFiles());
    default:
      return Fail(ENOTDIR, fmt::format("{} is a file", path));
  }
}

Result<std::string> FileTree::Read(std::string_view path) {
  auto place = PlaceOf(control_, path);
  if (!place) return std::unexpected(place.error());
  switch (place->kind) {
    case Kind::kProcessList: {
      auto processes = control_.Processes();
      if (!processes) return std::unexpected(processes.error());
      return ListProcesses(*processes);
    }
    case Kind::kProcessFile:
      return place->process_file->read(control_, place->uses[0]);
    case Kind::kVGpuFile:
      return place->vgpu_file->read(place->vgpu);
    default:
      return Fail(EISDIR, fmt::format("{} is a directory", path));
  }
}

Result<void> FileTree::Write(std::string_view path, std::string_view text) {
  auto place = PlaceOf(control_, path);
  if (!place) return std::unexpected(place.error());
  const bool of_process = place->kind == Kind::kProcessFile, of_vgpu = place->kind == Kind::kVGpuFile;
  const bool can_be_written = (of_process && place->process_file->write) || (of_vgpu && place->vgpu_file->write);
  if (!can_be_written) {
    const auto attributes = Look(path);
    const bool directory = attributes && S_ISDIR(attributes->mode);
    return Fail(directory ? EISDIR : EACCES, fmt::format("{} is read-only", path));
  }
  const auto value = OneValue(text);
  if (!value) return std::unexpected(value.error());
  return of_process ? place->process_file->write(control_, place->uses[0], *value)
                    : place->vgpu_file->write(control_, place->vgpu, *value);
}

Result<void> FileTree::MakeDirectory(std::string_view path) {
  if (Look(path)) return Fail(EEXIST, fmt::format("{} already exists", path));
  if (!IsVGpuPath(path)) return Fail(EPERM, "directories can be made only in vgpus", "each makes a vGPU there");
  auto made = control_.Create({.name = std::string(Split(path)[1])});
  if (!made) return std::unexpected(made.error());
  return {};
}

Result<void> FileTree::RemoveDirectory(std::string_view path) {
  auto place = PlaceOf(control_, path);
  if (!place) return std::unexpected(place.error());
  if (place->kind != Kind::kVGpu) return Fail(EPERM, "only directories in vgpus can be removed", "each is a vGPU");
  return control_.Remove(place->vgpu.name, /*force=*/false);
}

}  // namespace tessera::face
