// A checkpointer, and the test in place of its processes.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <deque>
#include <memory>
#include <optional>
#include <thread>

#include "base/install/own_program.h"
#include "base/seqpacket.h"
#include "base/testing/wait_until.h"
#include "server/checkpoint/checkpointer.h"

namespace tessera::server {

// A process that does nothing, and the test in its place at the other end of the socket.
class TestProcess {
 public:
  Result<CheckpointProcess> Start() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    socket_.Reset(ends[0]);
    const auto pid = Spawn({.name = "/bin/sleep", .arguments = {"100"}});
    EXPECT_TRUE(pid);
    process_.Reset(static_cast<int>(syscall(SYS_pidfd_open, *pid, 0)));
    return CheckpointProcess{.pid = *pid, .socket = UniqueFd(ends[1])};
  }
  ~TestProcess() { (void)syscall(SYS_pidfd_send_signal, process_.Get(), SIGKILL, nullptr, 0); }

  void Say(const wire::CheckpointAnswer& answer) { EXPECT_TRUE(SendPacket(socket_.Get(), BytesOf(answer))); }
  void Answer(const wire::CheckpointRequest& request, cuda::CUresult result, cuda::CUprocessState state) {
    Say({.type = wire::CheckpointAnswerType::kDone,
         .operation = request.operation,
         .pid = request.pid,
         .result = result,
         .state = state});
  }
  // What it was asked since the last time, if anything.
  std::optional<wire::CheckpointRequest> Asked() {
    alignas(8) std::byte packet[sizeof(wire::CheckpointRequest)];
    const ssize_t length = ReceivePacket(socket_.Get(), packet);
    if (length <= 0) {
      ended_ = ended_ || length == 0;
      return std::nullopt;
    }
    return wire::ReadCheckpointRequest(std::span(packet).first(static_cast<std::size_t>(length)));
  }
  // Whether the daemon has closed its end.
  bool Closed() {
    while (Asked()) {
    }
    return ended_;
  }
  void Die() { socket_.Reset(); }
  bool Killed() const {
    pollfd state = {.fd = process_.Get(), .events = POLLIN};
    return poll(&state, 1, 0) == 1;
  }

 private:
  UniqueFd socket_, process_;
  bool ended_ = false;
};

// What a callback was told, once it was called.
using Answered = std::optional<Result<void>>;

// On a loop with a thread of its own.
class CheckpointerTest : public testing::Test {
 protected:
  void TearDown() override {
    On([this] { checkpointer_.reset(); });
    On([this] { loop_->Stop(); });
    thread_.join();
  }

  // With limits that no test reaches, unless it sets others.
  void Make() {
    On([this] {
      checkpointer_ = MakeCheckpointer(
          *loop_,
          [this]() -> Result<CheckpointProcess> {
            if (cannot_start_) return Fail(EAGAIN, "no more processes");
            auto process = processes_.emplace_back(std::make_unique<TestProcess>())->Start();
            if (first_word_) processes_.back()->Say(*first_word_);
            return process;
          },
          limits_);
    });
  }
  // On the loop's thread, on which all of this lives. The test waits for it.
  template <typename Task>
  void On(Task task) {
    ASSERT_TRUE(loop_->Call([&] {
      task();
      return true;
    }));
  }
  template <typename Condition>
  void Until(Condition condition) {
    EXPECT_TRUE(BecomesTrue([&] { return loop_->Call([&] { return condition(); }).value_or(true); }, 30 * kSecond));
  }
  // The next request of process `number`.
  wire::CheckpointRequest Next(std::size_t number) {
    std::optional<wire::CheckpointRequest> request;
    Until([&] { return processes_.size() > number && (request = processes_[number]->Asked()); });
    return request.value_or(wire::CheckpointRequest{});
  }
  TestProcess& Process(std::size_t number) {
    return *loop_->Call([&] { return processes_.at(number).get(); }).value();
  }
  std::size_t Processes() {
    return loop_->Call([&] { return processes_.size(); }).value();
  }
  void Unlock(pid_t pid, Answered& result) {
    On([&] { checkpointer_->Unlock(pid, Note(result)); });
  }
  static Checkpointer::Done Note(Answered& result) {
    return [&result](const Result<void>& its) { result = its; };
  }
  // The error's code, or 0, once the callback was called: the loop calls it after the next request has gone out.
  int CodeOf(const Answered& result) {
    Until([&] { return result.has_value(); });
    return !result ? -1 : *result ? 0 : result->error().code;
  }

  CheckpointLimits limits_ = {.start = kHour, .call = kHour, .lock = kHour, .copy = kHour, .idle = kHour};
  std::optional<wire::CheckpointAnswer> first_word_ =
      wire::CheckpointAnswer{.type = wire::CheckpointAnswerType::kReady};
  bool cannot_start_ = false;
  std::deque<std::unique_ptr<TestProcess>> processes_;  // all that were started
  std::unique_ptr<EventLoop> loop_ = std::move(*EventLoop::Create());
  std::unique_ptr<Checkpointer> checkpointer_;

 private:
  static constexpr Nanos kHour = 3600 * kSecond;
  std::thread thread_{[this] { EXPECT_TRUE(loop_->Run()); }};
};

}  // namespace tessera::server
