#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace tessera::guard {

// Table of the processes whose GPU objects the gate counts. One thread.
class Processes {
 public:
  using Budget = std::shared_ptr<std::atomic<std::int64_t>>;  // SupervisorHooks::processes

  // A part of the budget: one process.
  class Share {
   public:
    Share() = default;
    explicit Share(Budget budget) : budget_(std::move(budget)) {}
    Share(Share&&) = default;
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_);
      return *this;
    }
    ~Share() {
      if (budget_) budget_->fetch_add(1, std::memory_order_relaxed);
    }

   private:
    Budget budget_;
  };

  struct Process {
    Share share;
    pid_t pid = 0;
    UniqueFd pidfd;
    std::uint64_t tree = 0;  // the listener that it was first seen behind
  };

  // Keeps a hostile program from using up the daemon's descriptors by forking.
  static constexpr std::size_t kMostPerTree = 2048;

  static Result<Processes> Create(Budget budget = {});

  // The process of a thread that waits behind the gate; it is kept until it ends. Null with errno set if it is gone
  // (ESRCH), there is a shortage (IsShortage), or the tree or its user has too many processes, or ends that were not
  // taken (EAGAIN). The pointer is valid until the next call.
  const Process* Of(pid_t tid, std::uint64_t tree);
  const Process* Find(pid_t pid) const;
  std::vector<pid_t> OfTree(std::uint64_t tree) const;
  std::size_t Size() const { return processes_.size(); }

  // Readable when one has ended.
  int EndedFd() const { return ends_.Get(); }
  // Takes the processes that have ended since the last call out of the table.
  std::vector<pid_t> TakeEnded();
  void Forget(pid_t pid);

 private:
  Processes() = default;
  const Process* Add(pid_t pid, std::uint64_t tree);
  bool Alive(const Process& process) const;

  Budget budget_;
  UniqueFd ends_;  // epoll of the pidfds
  std::unordered_map<pid_t, Process> processes_;
  std::unordered_map<std::uint64_t, std::size_t> trees_;  // how many of each
  std::unordered_map<pid_t, pid_t> threads_;              // a cache: thread to process
};

}  // namespace tessera::guard
