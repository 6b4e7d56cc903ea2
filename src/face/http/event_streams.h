#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "server/record/events.h"

namespace tessera::face {

// An event in the format of server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html).
std::string ToSse(const server::Event& event);

// The number in the id of an event, "STARTED-NUMBER". STARTED distinguishes this daemon's events from those of an
// earlier one. 0 for an id of another daemon or a malformed one: then all events that are kept are new to the client.
std::uint64_t NumberOfEventId(const std::string& id);

// Connections that receive events as they happen. One thread writes to all of them and never blocks on one: a client
// that reads too slowly falls behind, and is told how many events it missed once they are no longer kept. Any thread.
class EventStreams {
 public:
  static constexpr std::size_t kMost = 64;
  static constexpr std::size_t kMostOfUsers = 48, kMostOfAUser = 8;  // of users who are not operators
  static constexpr Nanos kKeepAlive = 15 * kSecond;  // longest time without sending, so that dead peers are noticed
  static constexpr Nanos kPatience = 60 * kSecond;   // a client that takes no data for so long is disconnected

  EventStreams();
  // Closes all of them.
  ~EventStreams();
  EventStreams(const EventStreams&) = delete;

  // The places that are taken, by user; those of operators together, as of no user.
  struct Places {
    Mutex mutex;
    std::map<std::optional<uid_t>, std::size_t> taken TESSERA_GUARDED_BY(mutex);
    std::size_t all TESSERA_GUARDED_BY(mutex) = 0;
  };
  // One of the kMost places. It is free again when this object ends.
  class Place {
   public:
    Place(Place&& other) noexcept = default;
    Place& operator=(Place&& other) noexcept {
      std::swap(places_, other.places_);
      std::swap(user_, other.user_);
      return *this;
    }
    ~Place();
    std::optional<uid_t> User() const { return user_; }

   private:
    friend class EventStreams;
    Place(std::shared_ptr<Places> places, std::optional<uid_t> user) : places_(std::move(places)), user_(user) {}
    std::shared_ptr<Places> places_;
    std::optional<uid_t> user_;
  };

  // A place for one more stream, to be taken before the head of the answer is written; of a user, who gets the events
  // that concern this user, or of an operator, who gets all. None if all are taken, or all that this user may have.
  std::optional<Place> TakePlace(std::optional<uid_t> user = {});
  // Sends the events after `number` to a connection to which the head of the answer was written.
  void Add(Place place, UniqueFd socket, std::uint64_t number);

 private:
  struct Stream {
    Place place;
    UniqueFd socket;
    std::uint64_t number = 0;  // of the last event in `unsent` or before
    std::string unsent;
    Nanos spoken = 0;
    bool gone = false;
  };
  void Run();
  static void Serve(Stream& stream, Nanos now);
  static void Fill(Stream& stream, Nanos now);

  const UniqueFd wake_;  // eventfd: news, or a new stream, or the end
  const std::shared_ptr<Places> places_ = std::make_shared<Places>();
  Mutex mutex_;
  std::list<Stream> added_ TESSERA_GUARDED_BY(mutex_);  // Run has not taken these yet
  bool ending_ TESSERA_GUARDED_BY(mutex_) = false;
  std::thread thread_ TESSERA_GUARDED_BY(mutex_);  // from the first stream on
};

}  // namespace tessera::face
