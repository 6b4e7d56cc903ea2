#include "face/http/event_streams.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "face/text/json.h"

namespace tessera::face {
namespace {

// Most events that are written to one stream in one go, so that its backlog does not delay the others.
constexpr std::size_t kBatch = 100;

// The start of this daemon's events, in milliseconds since 1970. Distinguishes them from another daemon's.
std::int64_t Started() {
  using namespace std::chrono;
  static const std::int64_t started =
      duration_cast<microseconds>(system_clock::now().time_since_epoch()).count() / 1000;
  return started;
}

}  // namespace

std::string ToSse(const server::Event& event) {
  return fmt::format("id: {}-{}\nevent: {}\ndata: {}\n\n", Started(), event.number, NameOf(event.type),
                     ToJson(event).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::uint64_t NumberOfEventId(const std::string& id) {
  const std::string prefix = std::to_string(Started()) + "-";
  std::uint64_t number = 0;
  if (!id.starts_with(prefix)) return 0;
  const auto [end, error] = std::from_chars(id.data() + prefix.size(), id.data() + id.size(), number);
  return error == std::errc() && end == id.data() + id.size() ? number : 0;
}

EventStreams::EventStreams() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { (void)Started(); }

EventStreams::~EventStreams() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  server::events::WakeOnNote(-1);
  eventfd_write(wake_.Get(), 1);
  if (thread_.joinable()) thread_.join();
}

std::optional<EventStreams::Place> EventStreams::TakePlace(std::optional<uid_t> user) {
  if (!wake_) return std::nullopt;
  const MutexLock lock(places_->mutex);
  std::size_t of_users = 0;
  for (const auto& [uid, taken] : places_->taken) of_users += uid ? taken : 0;
  if (places_->all >= kMost) return std::nullopt;
  if (user && (of_users >= kMostOfUsers || places_->taken[user] >= kMostOfAUser)) return std::nullopt;
  ++places_->all;
  ++places_->taken[user];
  return Place(places_, user);
}

EventStreams::Place::~Place() {
  if (!places_) return;
  const MutexLock lock(places_->mutex);
  --places_->all;
  if (--places_->taken[user_] == 0) places_->taken.erase(user_);
}

void EventStreams::Add(Place place, UniqueFd socket, std::uint64_t number) {
  const MutexLock lock(mutex_);
  if (ending_) return;
  fcntl(socket.Get(), F_SETFL, fcntl(socket.Get(), F_GETFL) | O_NONBLOCK);
  added_.push_back({.place = std::move(place),
                    .socket = std::move(socket),
                    .number = number,
                    .unsent = "retry: 1000\n\n",
                    .spoken = MonotonicNow()});
  if (!thread_.joinable()) {
    server::events::WakeOnNote(wake_.Get());
    thread_ = std::thread([this] { Run(); });
  }
  eventfd_write(wake_.Get(), 1);
}

void EventStreams::Run() {
  std::list<Stream> streams;
  std::vector<pollfd> fds;
  for (;;) {
    eventfd_t count;
    eventfd_read(wake_.Get(), &count);
    {
      const MutexLock lock(mutex_);
      if (ending_) return;
      std::erase_if(streams, [](const Stream& stream) { return stream.gone; });
      streams.splice(streams.end(), added_);
    }
    fds = {{wake_.Get(), POLLIN, 0}};
    const Nanos now = MonotonicNow();
    Nanos next = kNever;
    for (Stream& stream : streams) {
      Serve(stream, now);
      const bool behind = !stream.unsent.empty();
      fds.push_back({stream.socket.Get(), static_cast<short>(behind ? POLLOUT : 0), 0});
      next = std::min(next, stream.spoken + (behind ? kPatience : kKeepAlive));
    }
    if (std::ranges::any_of(streams, &Stream::gone)) continue;
    const int wait = next == kNever ? -1 : static_cast<int>(std::max<Nanos>(next - now, 0) / kMillisecond) + 1;
    if (poll(fds.data(), fds.size(), wait) <= 0) continue;
    auto fd = fds.begin() + 1;
    for (Stream& stream : streams) stream.gone = ((fd++)->revents & (POLLHUP | POLLERR)) != 0;
  }
}

// Sends as much as the socket takes.
void EventStreams::Serve(Stream& stream, Nanos now) {
  for (;;) {
    if (stream.unsent.empty()) Fill(stream, now);
    if (stream.unsent.empty()) return;
    const ssize_t sent = send(stream.socket.Get(), stream.unsent.data(), stream.unsent.size(), MSG_NOSIGNAL);
    if (sent < 0) {
      stream.gone = errno != EINTR && (errno != EAGAIN || now - stream.spoken >= kPatience);
      if (errno != EINTR) return;
      continue;
    }
    stream.spoken = now;
    stream.unsent.erase(0, static_cast<std::size_t>(sent));
  }
}

// Appends the next events, if there are any.
void EventStreams::Fill(Stream& stream, Nanos now) {
  const auto batch = server::events::After(stream.number, kBatch, stream.place.User());
  if (batch.lost > 0) stream.unsent += fmt::format("event: lost\ndata: {{\"events\":{}}}\n\n", batch.lost);
  for (const server::Event& event : batch.events) stream.unsent += ToSse(event);
  stream.number = batch.upto;
  if (stream.unsent.empty() && now - stream.spoken >= kKeepAlive) stream.unsent = ": nothing new\n\n";
}

}  // namespace tessera::face
