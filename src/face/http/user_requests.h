#pragma once

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "face/http/peer_stream.h"

namespace tessera::face {

// The requests of users who are not operators: one user's are answered one after the other, so that a user who sends or
// reads slowly delays nobody else as long as a thread is free. Any thread.
class UserRequests {
 public:
  // `answer` is called by threads of this object's own.
  UserRequests(int threads, std::function<void(UniqueFd)> answer)
      : answer_(std::move(answer)), threads_(static_cast<std::size_t>(threads)) {}
  // Waits for requests that are under way.
  ~UserRequests() { threads_.shutdown(); }

  // Further requests of a user who has kMostOfAUser already are closed.
  static constexpr std::size_t kMostOfAUser = 64;
  void Add(uid_t uid, UniqueFd socket) {
    const MutexLock lock(mutex_);
    auto& waiting = waiting_[uid];
    if (waiting.size() >= kMostOfAUser) return;
    waiting.push_back(std::move(socket));
    if (waiting.size() == 1) Enqueue(uid);
  }

 private:
  void Enqueue(uid_t uid) TESSERA_REQUIRES(mutex_) {
    threads_.enqueue([this, uid] { AnswerNext(uid); });
  }
  // The request that is being answered stays in front, so that no other of its user begins.
  void AnswerNext(uid_t uid) {
    UniqueFd socket;
    {
      const MutexLock lock(mutex_);
      socket = std::move(waiting_[uid].front());
    }
    answer_(std::move(socket));
    const MutexLock lock(mutex_);
    auto& waiting = waiting_[uid];
    waiting.pop_front();
    if (waiting.empty())
      waiting_.erase(uid);
    else
      Enqueue(uid);
  }

  const std::function<void(UniqueFd)> answer_;
  Mutex mutex_;
  std::map<uid_t, std::deque<UniqueFd>> waiting_ TESSERA_GUARDED_BY(mutex_);
  httplib::ThreadPool threads_;
};

}  // namespace tessera::face
