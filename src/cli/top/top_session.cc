#include "cli/top/top_session.h"

#include <algorithm>

#include "base/size.h"
#include "cli/vgpu/settings_options.h"
#include "client/json_fields.h"

namespace tessera::cli::top {
using client::Field;
using client::IntegerField;
using client::Json;

namespace {

std::string PathOf(const Subject& subject) {
  return subject.kind == Subject::kProcess ? "/v1/processes/" + std::to_string(subject.pid)
                                           : "/v1/vgpus/" + subject.vgpu;
}

// "team-a" or "process 4711"
std::string NameOf(const Subject& subject) {
  return subject.kind == Subject::kProcess ? "process " + std::to_string(subject.pid) : subject.vgpu;
}

bool Is(const Key& key, const char* character) { return key.character == character; }

}  // namespace

void Session::Say(std::string text, bool wrong) { said_ = {std::move(text), wrong}; }

Session::Status Session::status() const {
  switch (mode_) {
    case Mode::kSet:
      return {"tessera vgpu set " + vgpu_ + " " + text_, false, true};
    case Mode::kFilter:
      return {"Filter: " + text_, false, true};
    case Mode::kAskEvict:
      return {"Move the memory of " + NameOf(subject_) + " to host memory? y/n", false, true};
    case Mode::kList:
    case Mode::kHelp:
      break;
  }
  if (!lost_.empty()) return {lost_, true};
  if (silent_ > 0) {
    return {"the daemon has not answered for " + std::to_string(silent_ / kSecond) +
                " s; the figures are that old; still trying",
            true};
  }
  return said_;
}

void Session::Take(Snapshot snapshot) {
  model.Take(std::move(snapshot));
  for (const auto& [vgpu, wish] : wishes_) model.SetPriority(vgpu, wish.priority);
  if (!connected_) Say("the daemon answers again");
  connected_ = true;
  lost_.clear();
}

void Session::Lost(const Error& error) {
  connected_ = false;
  lost_ = "retrying: " + error.Text();
}

void Session::Done(const Order& order, const Result<Json>& answer) {
  if (const auto wish = wishes_.find(order.renices); wish != wishes_.end() && --wish->second.orders == 0)
    wishes_.erase(wish);
  if (!answer) return Say(answer.error().Text(), true);
  const Json& evictions = Field(*answer, "evictions");
  if (!evictions.is_array()) return Say(order.done);
  std::uint64_t bytes = 0;
  for (const Json& eviction : evictions) bytes += IntegerField(eviction, "evicting_bytes");
  Say(order.done + (bytes > 0 ? "moving " + FormatSize(bytes) + " to host memory" : "nothing to move"));
}

std::optional<Order> Session::Press(const Key& key) {
  switch (mode_) {
    case Mode::kHelp:
      mode_ = Mode::kList;
      return std::nullopt;
    case Mode::kAskEvict:
      mode_ = Mode::kList;
      if (Is(key, "y") || Is(key, "Y")) return Evict();
      Say("eviction cancelled");
      return std::nullopt;
    case Mode::kSet:
    case Mode::kFilter:
      return Edit(key);
    case Mode::kList:
      break;
  }
  return PressInList(key);
}

bool Session::Navigate(const Key& key) {
  const long page = std::max(page_, 1);
  if (key.special == Special::kUp || Is(key, "k")) {
    model.Move(-1);
  } else if (key.special == Special::kDown || Is(key, "j")) {
    model.Move(1);
  } else if (key.special == Special::kPageUp) {
    model.Move(-page);
  } else if (key.special == Special::kPageDown) {
    model.Move(page);
  } else if (key.special == Special::kHome || Is(key, "g")) {
    model.Select(0);
  } else if (key.special == Special::kEnd || Is(key, "G")) {
    model.Select(static_cast<long>(model.rows().size()));
  } else {
    return false;
  }
  return true;
}

std::optional<Order> Session::PressInList(const Key& key) {
  if (Navigate(key)) return std::nullopt;
  if (key.special == Special::kEscape && !model.arrangement().filter.empty()) {
    SetFilter("");
    return std::nullopt;
  }
  if (key.character.size() != 1) return std::nullopt;
  switch (const char c = key.character[0]) {
    case 'q':
    case 'Q':
      quit_ = true;
      break;
    case 'h':
    case '?':
      mode_ = Mode::kHelp;
      break;
    case 'f':
    case 'F':
      return ToggleFreeze();
    case '+':
    case ']':
      return Renice(-1);
    case '-':
    case '[':
      return Renice(1);
    case 's':
      return Set();
    case 'e':
      if (const Row* row = Target()) {
        subject_ = row->subject;
        mode_ = Mode::kAskEvict;
      }
      break;
    default:
      Arrange(c);
  }
  return std::nullopt;
}

void Session::SetFilter(const std::string& filter) {
  model.Rearrange([&](Arrangement& arranged) { arranged.filter = filter; });
}

void Session::Arrange(char key) {
  switch (key) {
    case 'o':
    case '>':
    case '<':
      model.Rearrange([key](Arrangement& arranged) { arranged.sort = Next(arranged.sort, key == '<' ? -1 : 1); });
      Say(std::string("sorted by ") + top::NameOf(model.arrangement().sort));
      break;
    case 'I':
      model.Rearrange([](Arrangement& arranged) { arranged.reversed = !arranged.reversed; });
      Say(model.arrangement().reversed ? "sorted in reverse order" : "sorted in normal order");
      break;
    case 't':
      model.Rearrange([](Arrangement& arranged) { arranged.tree = !arranged.tree; });
      Say(model.arrangement().tree ? "grouped by vGPU" : "all processes in one list");
      break;
    case '/':
      text_ = model.arrangement().filter;
      mode_ = Mode::kFilter;
      break;
    default:
      break;
  }
}

std::optional<Order> Session::Edit(const Key& key) {
  const bool set = mode_ == Mode::kSet;
  if (key.special == Special::kEscape) {
    mode_ = Mode::kList;
    if (!set) SetFilter("");
    return std::nullopt;
  }
  if (key.special == Special::kEnter) {
    mode_ = Mode::kList;
    if (!set || text_.find_first_not_of(' ') == std::string::npos) return std::nullopt;
    const auto settings = ReadSettings(text_);
    const auto body = settings ? RequestBody(*settings) : Result<Json>(std::unexpected(settings.error()));
    if (body) return Order{"PATCH", "/v1/vgpus/" + vgpu_ + "?wait=false", *body, vgpu_ + " changed: " + text_};
    Say(body.error().Text(), true);
    return std::nullopt;
  }
  if (key.special == Special::kBackspace) {
    while (!text_.empty() && (static_cast<unsigned char>(text_.back()) & 0xc0) == 0x80) text_.pop_back();
    if (!text_.empty()) text_.pop_back();
  } else if (!key.character.empty() && static_cast<unsigned char>(key.character[0]) >= ' ' && text_.size() < 512) {
    text_ += key.character;
  }
  if (!set) SetFilter(text_);
  return std::nullopt;
}

const Row* Session::Target() {
  const Row* row = model.selected_row();
  if (row && row->subject.kind != Subject::kOutside) return row;
  Say(row ? "these programs are in no vGPU: select one of them" : "nothing is selected", true);
  return nullptr;
}

std::optional<Order> Session::ToggleFreeze() {
  const Row* row = Target();
  if (!row) return std::nullopt;
  const bool frozen = row->process ? row->process->frozen_by_operator : row->vgpu->frozen_by_operator;
  // A process of a frozen vGPU counts as frozen, and a thaw of the process alone has no effect.
  if (row->process && row->vgpu && row->vgpu->frozen_by_operator) {
    Say("its vGPU " + row->vgpu->name + " is frozen: thaw the vGPU instead", true);
    return std::nullopt;
  }
  return Order{"POST", PathOf(row->subject) + (frozen ? "/thaw" : "/freeze"), Json::object(),
               NameOf(row->subject) + (frozen ? " is thawed" : " is frozen")};
}

std::optional<Order> Session::Renice(int step) {
  const Row* row = model.selected_row();
  if (!row || !row->vgpu || !row->vgpu->priority) {
    Say("only vGPUs have a priority: select one, or a program in one", true);
    return std::nullopt;
  }
  const std::string name = row->vgpu->name;
  const int before = *row->vgpu->priority;
  const int priority = std::clamp(before + step, 0, 15);
  if (priority == before) {
    Say(name + " already has the " + (step < 0 ? "highest" : "lowest") + " priority, " + std::to_string(before));
    return std::nullopt;
  }
  // At once, so that pressing the key twice moves two steps.
  model.SetPriority(name, priority);
  wishes_[name] = {priority, wishes_[name].orders + 1};
  return Order{
      "PATCH", "/v1/vgpus/" + name, Json{{"compute_priority", priority}},
      name + " has priority " + std::to_string(priority) + " (was " + std::to_string(before) + "; lower goes first)",
      name};
}

std::optional<Order> Session::Set() {
  const Row* row = model.selected_row();
  if (!row || !row->vgpu) {
    Say("only vGPUs have settings: select one, or a program in one", true);
    return std::nullopt;
  }
  vgpu_ = row->vgpu->name;
  text_ = "--";
  mode_ = Mode::kSet;
  return std::nullopt;
}

std::optional<Order> Session::Evict() {
  return Order{"POST", PathOf(subject_) + "/evict", Json{{"to_bytes", 0}}, NameOf(subject_) + ": "};
}

}  // namespace tessera::cli::top
