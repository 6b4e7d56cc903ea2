#include "mover/program/program.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/descriptor.h"
#include "base/fault.h"
#include "base/seqpacket.h"

namespace tessera::mover {

using wire::LineType;

namespace {

// What is asked of a program ahead of its answers, and what may be under way in all: enough that copy engines do not
// wait for it, and little enough that its memory does not lie here for long.
constexpr std::size_t kMostAsked = 3;
constexpr std::size_t kMostUnderWay = 6;

}  // namespace

Program::Program(Workplace& place, std::uint64_t id, pid_t pid, Domain domain, UniqueFd line)
    : place_(place), id_(id), pid_(pid), domain_(domain), line_(place.epoll, std::move(line)) {}

// ---- the daemon's wishes ----

void Program::Move(Direction direction, std::uint64_t chunks) {
  Task& task = TaskOf(direction);
  task.pending = true;
  task.left += chunks;
  task.error = 0;
  rests_ = direction == Direction::kOut;
  file_error_ = 0;
  if (fd() < 0) Finish(direction, task.left, EPIPE);
}

void Program::Settle() {
  if (fd() < 0) return TellSettled(EPIPE);
  rests_ = false;
  settling_ = true;
  file_error_ = 0;
  GoOnSettling();
}

void Program::Gone() {
  gone_ = true;
  if (fd() >= 0) EndLine();
  Release();
}

// ---- asking ----

std::uint64_t Program::Asked() const {
  std::uint64_t asked = 0;
  for (const Question& question : questions_) asked += question.asked;
  return asked;
}

std::uint64_t Program::Demand() const {
  const Task& task = tasks_[static_cast<int>(Direction::kOut)];
  if (active_ != Direction::kOut) return ToRead();
  return ToRead() + Asked() + (task.error == 0 ? task.left : 0);
}

void Program::Starve() {
  StarveReading();
  Task& task = TaskOf(Direction::kOut);
  const bool evicts = active_ == Direction::kOut && task.left > 0 && task.error == 0;
  if (evicts && place_.FreeFor(domain_) <= Asked()) task.error = ENOMEM;
  if (evicts || file_error_ != 0) GoOn();
}

void Program::GoOn() {
  if (SilentFor(place_.patience)) {
    std::fprintf(stderr, "tessera-mover: program %llu: it does not answer; its line is closed\n",
                 static_cast<unsigned long long>(id_));
    line_broke_ = true;
  }
  if (line_broke_) EndLine();
  if (fd() < 0) return;
  for (const Direction direction : {Direction::kOut, Direction::kIn}) {
    if (!active_ && TaskOf(direction).pending) active_ = direction;
  }
  ReadSome();
  GoOnSettling();
  if (!active_) return;
  Task& task = TaskOf(*active_);
  while (task.left > 0 && task.error == 0) {
    const auto asked =
        static_cast<std::size_t>(std::ranges::count_if(questions_, [](const Question& q) { return q.asked > 0; }));
    if (asked >= kMostAsked || asked + batches_.size() >= kMostUnderWay) return;
    std::uint64_t count = std::min(task.left, kAtATime);
    if (*active_ == Direction::kOut) {
      const std::uint64_t free = place_.FreeFor(domain_);
      count = std::min(count, free - std::min(free, Asked()));
    } else if (Filed() || lost_ > 0) {
      // It wants what is in host memory, which may be what the disk works at.
      const std::uint64_t ready = stored_.Count(Tier::kFiling) > 0 ? 0 : stored_.Count(Tier::kSlot);
      count = std::min(count, ready - std::min(ready, Asked()));
      if (count == 0 && Asked() == 0 && file_error_ != 0) task.error = file_error_;
      if (count == 0 && Asked() == 0 && lost_ > 0 && stored_.Empty()) task.error = ESTALE;
    }
    if (count == 0) break;
    Ask(*active_, static_cast<std::uint32_t>(count));
  }
  const bool done = task.left == 0 || task.error != 0;
  if (done && batches_.empty() && Asked() == 0) Finish(*active_, task.left, task.left > 0 ? task.error : 0);
}

void Program::Ask(Direction direction, std::uint32_t count) {
  const LineType type = direction == Direction::kOut ? LineType::kEvict : LineType::kLoad;
  Send({.type = type, .count = count});
  Expect({.type = type, .asked = count});
  TaskOf(direction).left -= count;
}

void Program::Finish(Direction direction, std::uint64_t left, int error) {
  const bool out = direction == Direction::kOut;
  if (!gone_) {
    place_.tell({.type = out ? wire::MoverType::kEvicted : wire::MoverType::kLoaded,
                 .error = error,
                 .program = id_,
                 .bytes = left * wire::kChunkBytes});
  }
  TaskOf(direction) = {};
  if (active_ == direction) active_.reset();
}

// ---- the line ----

// What a peer that hung up does not get is no matter: what it said before is still to be read, and then its end.
void Program::Send(const wire::LineMessage& message, std::span<const int> fds) {
  if (!line_.Send(BytesOf(message), fds) && errno != EPIPE && errno != ECONNRESET) line_broke_ = true;
}

void Program::Say(LineType type, std::span<const std::uint64_t> chunks, std::span<const int> fds) {
  wire::LineMessage message = {.type = type, .count = static_cast<std::uint32_t>(chunks.size())};
  std::ranges::copy(chunks, message.chunk);
  Send(message, fds);
}

void Program::OnWritable() {
  if (!line_.Flush() && errno != EPIPE && errno != ECONNRESET) line_broke_ = true;
}

void Program::OnReadable() {
  if (fd() < 0) return;
  std::byte buffer[sizeof(wire::LineMessage)];
  UniqueFd fds[kMostDescriptors];
  std::size_t received = 0;
  const auto takes = CanCloseNoMore() ? std::span<UniqueFd>() : std::span<UniqueFd>(fds);
  const ssize_t length = ReceivePacket(fd(), buffer, takes, received);
  if (length < 0 && errno == EAGAIN) return;
  const bool ended = length == 0 || (length < 0 && errno == ECONNRESET);
  const auto message = wire::ReadLine(std::span(buffer, static_cast<std::size_t>(std::max<ssize_t>(length, 0))));
  Result<void> right = Fail(EPROTO, "a packet that is no message, or has other descriptors than it should");
  bool prompt = true;
  for (UniqueFd& file : std::span(fds).first(received)) {
    if (IsPrompt(file.Get())) continue;
    CloseElsewhere(std::move(file));
    prompt = false;
  }
  if (ended) return EndLine();
  if (prompt && message && received == DescriptorsOf(*message)) {
    Packet packet = {.message = *message};
    for (std::size_t i = 0; i < received; ++i) packet.fds.push_back(std::move(fds[i]));
    right = OnPacket(std::move(packet));
  }
  if (right) return;
  std::fprintf(stderr, "tessera-mover: program %llu: %s; its line is closed\n", static_cast<unsigned long long>(id_),
               right.error().Text().c_str());
  EndLine();
}

// Copies go on; what they are for is decided when they have ended.
void Program::EndLine() {
  line_.Close();
  line_broke_ = false;
  std::uint64_t under_way = Asked();
  for (const auto& batch : batches_) under_way += batch->entries.size();
  for (const Question& question : questions_) {
    if (question.type == LineType::kSettle) TellSettled(EPIPE);
    if (question.move) held_.push_back(question.move->slot);  // it may hold that, or not
    if (question.batch == nullptr) continue;
    for (const Batch::Entry& entry : question.batch->entries) {
      if (question.batch->direction == Direction::kOut || entry.dropped) held_.push_back(entry.slot);
    }
    Forget(question.batch);
  }
  if (std::exchange(settling_, false)) TellSettled(EPIPE);
  LeaveFile();
  questions_.clear();
  asked_at_ = kNever;
  if (active_) TaskOf(*active_).left += under_way;
  for (const Direction direction : {Direction::kOut, Direction::kIn}) {
    if (TaskOf(direction).pending) Finish(direction, TaskOf(direction).left, EPIPE);
  }
}

// That it talks to nobody any more does not say that it writes no more to the host memory that it has: the pool looks
// whether its process has ended. One that gets another line claims what it has, but not what is being copied, which is
// a matter of milliseconds and costs it nothing but that it stays out.
void Program::Release() {
  const bool all = copying_ == 0 && on_disk_ == 0;
  stored_.EraseIf([&](std::uint64_t, const Stored& stored) {
    if (!all && stored.tier != Tier::kSlot) return false;
    held_.push_back(stored.slot);
    return true;
  });
  for (const Slot slot : std::exchange(held_, {})) place_.pool.Leave(slot, MonotonicNow() + kClaimTime);
}

// ---- copies ----

void Program::Start(std::shared_ptr<Batch> batch) {
  batch->program = shared_from_this();
  batches_.push_back(batch);
  TaskOf(batch->direction).left -= batch->entries.size();
  ++copying_;
  if (const auto started = place_.copier.Start(batch); !started) place_.broken = started.error();
}

// By value: the caller may hold the batch by what is erased.
void Program::Forget(std::shared_ptr<Batch> batch) { std::erase(batches_, batch); }

void Program::OnCopied(const std::shared_ptr<Batch>& batch) {
  --copying_;
  if (fd() < 0) {
    OnCopiedForNobody(*batch);
    Forget(batch);
    if (gone_) Release();
  } else {
    batch->direction == Direction::kOut ? GiveStored(batch) : GiveLoaded(batch);
  }
  batch->program.reset();
}

void Program::OnCopiedForNobody(Batch& batch) {
  batch.window.reset();
  for (const Batch::Entry& entry : batch.entries) {
    if (batch.direction == Direction::kOut) {
      place_.pool.GiveBack(entry.slot);  // its descriptor was not given to anybody for this copy
    } else if (entry.dropped) {
      held_.push_back(entry.slot);
    }
  }
}

void Program::GiveStored(const std::shared_ptr<Batch>& batch) {
  batch->window.reset();
  wire::LineMessage message = {.type = LineType::kStored};
  std::vector<int> fds;
  for (const Batch::Entry& entry : batch->entries) {
    place_.pool.Give(entry.slot, domain_, pid_);
    message.chunk[message.count] = entry.chunk;
    message.key[message.count++] = place_.pool.KeyOf(entry.slot);
    fds.push_back(place_.pool.MemoryOf(entry.slot).fd.Get());
  }
  Send(message, fds);
  PassFault("mover.stored.sent");
  Expect({.type = LineType::kStored, .batch = batch});
}

void Program::GiveLoaded(const std::shared_ptr<Batch>& batch) {
  batch->window.reset();
  std::vector<std::uint64_t> chunks;
  for (const Batch::Entry& entry : batch->entries) chunks.push_back(entry.chunk);
  Say(LineType::kLoaded, chunks);
  PassFault("mover.loaded.sent");
  Expect({.type = LineType::kLoaded, .batch = batch});
}

// The chunks stay where they are. No more are asked for if there is an error.
void Program::Refuse(LineType type, Direction direction, std::span<const std::uint64_t> chunks, int error) {
  Say(type, chunks);
  if (error != 0) TaskOf(direction).error = error;
}

void Program::Store(std::uint64_t chunk, Slot slot) { stored_.Add(chunk, {.number = place_.stored++, .slot = slot}); }

void Program::TellSettled(int error) {
  if (!gone_) place_.tell({.type = wire::MoverType::kSettled, .error = error, .program = id_});
}

void Program::TellMoved() {
  place_.tell({.type = wire::MoverType::kMoved,
               .program = id_,
               .bytes = moved_[static_cast<int>(Direction::kOut)] * wire::kChunkBytes,
               .other = moved_[static_cast<int>(Direction::kIn)] * wire::kChunkBytes});
}

}  // namespace tessera::mover
