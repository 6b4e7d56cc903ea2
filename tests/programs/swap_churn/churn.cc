#include "churn.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/clock.h"

namespace tessera::churn {

using namespace cuda;

namespace {

constexpr std::uint64_t kLargeStride = 64 << 10;
constexpr std::uint64_t kSmallStride = 512;
constexpr std::uint64_t kLargest = 48 << 20;

}  // namespace

Churn::Churn(std::uint64_t seed, std::uint64_t most_bytes, Kinds kinds)
    : peer_(kinds.peer ? std::optional<Peer>(std::in_place) : std::nullopt),
      dice_(seed),
      most_bytes_(most_bytes),
      kinds_(kinds) {}

bool Churn::Given(CUresult result, const char* what) {
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    ++tally_.refused;
    return false;
  }
  Check(result, what);
  return true;
}

void Churn::Round() {
  ++tally_.rounds;
  const std::uint64_t choice = dice_.Number(0, 99);
  if (buffers_.empty() || choice < 12) return Allocate();
  if (choice < 17) return Free(dice_.Any(buffers_));
  if (choice < 23) return Special();
  if (choice < 45) return Step();
  if (choice < 57) return Scatter();
  if (choice < 70) return Copy();
  if (choice < 74) {
    Given(graphs_.Capture(Any(), Any(), kinds_.graph_memory && dice_.OneIn(2)), "a graph is made");
    return;
  }
  if (choice < 86 && !graphs_.Empty()) {
    Given(graphs_.Replay(), "cuGraphLaunch");
    return;
  }
  Verify(Any());
}

Source& Churn::AnySource() {
  const std::uint64_t choice = dice_.Number(0, 9);
  if (choice < 3 && kinds_.pools) return pools_;
  if (choice < 6 && kinds_.segments) return segments_;
  if (choice < 7 && kinds_.graph_memory) return graph_memory_;
  return heap_;
}

std::uint64_t Churn::BytesOf(const Source& source) const {
  std::uint64_t bytes = 0;
  for (const Buffer& buffer : buffers_) bytes += buffer.source == &source ? buffer.bytes : 0;
  return bytes;
}

void Churn::Allocate() {
  Buffer made;
  Source& source = AnySource();
  const bool small = &source != &segments_ && dice_.OneIn(6);
  made.source = &source;
  made.bytes = small ? dice_.Number(1, 100) * kSmallStride : dice_.Number(2 << 20, kLargest);
  made.stride = small ? kSmallStride : kLargeStride;
  if (bytes_ + made.bytes > most_bytes_) return buffers_.empty() ? void() : Free(dice_.Any(buffers_));
  // What may not be movable takes no more than a part.
  if (&source == &segments_ && BytesOf(source) + made.bytes > most_bytes_ / 3) return;
  if (!Given(source.Make(made), source.Name())) return;
  bytes_ += made.bytes;
  tally_.most_bytes = std::max(tally_.most_bytes, bytes_);
  made.words.resize(made.bytes / made.stride);
  buffers_.push_back(std::move(made));
  Plant(buffers_.back(), 0, buffers_.back().words.size());
}

// Also while work that uses it is under way: the driver waits for that.
void Churn::Free(std::list<Buffer>::iterator buffer) {
  if (dice_.OneIn(2)) Verify(*buffer);
  graphs_.Drop(*buffer);
  if (buffer->slot >= 0) peer_->Close(*buffer);
  buffer->source->Free(*buffer);
  bytes_ -= buffer->bytes;
  buffers_.erase(buffer);
}

void Churn::Special() {
  Buffer& buffer = Any();
  if (kinds_.pools && dice_.OneIn(4)) return pools_.Change();
  if (buffer.source == &segments_) return Reshape(buffer);
  if (peer_ && buffer.source == &heap_ && buffer.stride == kLargeStride) return WorkInPeer(buffer);
  Step();
}

void Churn::Reshape(Buffer& buffer) {
  graphs_.Drop(buffer);
  const std::uint64_t before = buffer.bytes, all = BytesOf(segments_);
  Buffer& other = Any();
  if (&other != &buffer && other.source == &segments_) {
    graphs_.Drop(other);
    segments_.MoveTail(buffer, other);
    other.last = "made longer by another one's end";
  } else {
    const std::uint64_t most = std::min(most_bytes_ - bytes_, most_bytes_ / 3 - std::min(most_bytes_ / 3, all));
    const Segments::Fresh fresh = segments_.Change(buffer, most);
    Given(fresh.result, "a handle is made and mapped");
    bytes_ += buffer.bytes - before;
    tally_.most_bytes = std::max(tally_.most_bytes, bytes_);
    Plant(buffer, fresh.first, fresh.count);
  }
  ++tally_.reshaped;
  buffer.last = "reshaped";
  if (buffer.words.empty())
    Free(std::find_if(buffers_.begin(), buffers_.end(), [&](auto& b) { return &b == &buffer; }));
}

void Churn::WorkInPeer(Buffer& buffer) {
  if (buffer.slot < 0 && !Given(peer_->Open(buffer), "the memory is shared")) return;
  if (buffer.slot < 0) return;
  gpu_.Synchronize();
  const std::uint64_t wrong = peer_->Step(buffer, dice_.Word(), dice_.Word());
  if (wrong > 0) {
    tally_.wrong += wrong;
    std::fprintf(stderr, "swap_churn: %.6f: round %llu: the second process saw wrong words at %#llx, last %s\n",
                 static_cast<double>(MonotonicNow()) / kSecond, static_cast<unsigned long long>(tally_.rounds),
                 static_cast<unsigned long long>(buffer.address), buffer.last);
  }
  tally_.checked += buffer.words.size();
  ++tally_.shared;
  buffer.last = "stepped by the second process";
  if (dice_.OneIn(4)) peer_->Close(buffer);
}

void Churn::Plant(Buffer& buffer, std::uint64_t first, std::uint64_t count) {
  if (count == 0) return;
  const std::uint64_t term = dice_.Word();
  gpu_.Step(buffer.address + first * buffer.stride, count, buffer.stride, 0, term);
  StepOnHost(std::span(buffer.words).subspan(first, count), 0, term);
}

void Churn::Step() {
  Buffer& buffer = Any();
  const std::uint64_t factor = dice_.Word(), term = dice_.Word();
  gpu_.Step(buffer.address, buffer.words.size(), buffer.stride, factor, term);
  StepOnHost(buffer.words, factor, term);
  buffer.last = "stepped";
}

void Churn::Scatter() {
  Buffer& buffer = Any();
  const std::uint64_t first = dice_.Number(0, buffer.words.size() - 1);
  const std::uint64_t count = dice_.Number(1, buffer.words.size() - first);
  const std::span words = std::span(buffer.words).subspan(first, count);
  for (std::uint64_t& word : words) word = dice_.Word();
  gpu_.Scatter(buffer.address + first * buffer.stride, buffer.stride, words);
  buffer.last = "scattered to";
}

void Churn::Copy() {
  const Buffer& from = Any();
  Buffer& to = Any();
  const std::uint64_t words = CommonWords(from, to);
  if (words == 0) return;
  const std::uint64_t first = dice_.Number(0, to.words.size() - words);
  gpu_.Copy(to.address + first * to.stride, from.address, words * from.stride);
  std::copy_n(from.words.begin(), words, to.words.begin() + static_cast<std::ptrdiff_t>(first));
  to.last = "copied to";
}

void Churn::Verify(const Buffer& buffer) {
  std::vector<std::uint64_t> found(buffer.words.size());
  gpu_.Gather(found, buffer.address, buffer.stride);
  std::vector<std::size_t> wrong;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] != buffer.words[i]) wrong.push_back(i);
  }
  tally_.wrong += wrong.size();
  tally_.checked += found.size();
  if (wrong.empty()) return;
  std::fprintf(stderr,
               "swap_churn: %.6f: round %llu: %zu of %zu words at %#llx (%s) are wrong, %zu to %zu of %llu bytes each, "
               "last %s\n",
               static_cast<double>(MonotonicNow()) / kSecond, static_cast<unsigned long long>(tally_.rounds),
               wrong.size(), found.size(), static_cast<unsigned long long>(buffer.address), buffer.source->Name(),
               wrong.front(), wrong.back(), static_cast<unsigned long long>(buffer.stride), buffer.last);
}

void Churn::VerifyAll() {
  for (const Buffer& buffer : buffers_) Verify(buffer);
}

}  // namespace tessera::churn
