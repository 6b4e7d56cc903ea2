#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/process/process_start.h"
#include "base/result.h"
#include "server/loop/background.h"
#include "server/loop/event_loop.h"
#include "server/spaces/mps_commands.h"
#include "server/spaces/mps_daemon.h"

namespace tessera::server {

// A space: the vGPUs of one user on one GPU whose programs run at the same time, as clients of one MPS server. Keeps
// the control daemon and the server running while a vGPU is in it, and sees when a client's fault has ended the others.
// Runs on the loop's thread; what it asks the control daemon is asked by a thread of its own.
class Space {
 public:
  struct Identity {
    std::string name;
    std::uint32_t number = 0;  // among the spaces that this daemon has made: sched::SpacePlace::number
    std::uint32_t gpu = 0;
    uid_t uid = 0;  // of its vGPUs and their programs
  };
  enum class State {
    kStarting,  // no server takes programs yet
    kReady,
    kFault,    // a client's fault ended all clients of the server, and it takes no others until they have gone
    kClosing,  // the control daemon is told to end
  };
  struct Host {
    std::function<void(Space&)> changed = [](Space&) {};  // state or server
    std::function<void(Space&)> closed = [](Space&) {};   // after Close; it must not be destroyed inside this call
  };

  static constexpr Nanos kUntilStarted = 10 * kSecond;

  // The loop outlives the space. The directory of `record` exists. `until_started`: a look waits so long for a server.
  Space(EventLoop& loop, Identity identity, const MpsPlace& place, std::string record, Host host,
        Nanos until_started = kUntilStarted);
  Space(const Space&) = delete;
  ~Space();

  // Errors: those of MpsDaemon::Open.
  Result<void> Open();
  // Ends server and control daemon, with programs or without.
  void Close();
  // A question to the control daemon is under way. The destructor waits for its end, up to MpsCommands::kPatience for
  // each command.
  bool Asking() const { return asking_.Busy(); }

  const Identity& Who() const { return identity_; }
  State Present() const { return state_; }
  const std::string& Error() const { return error_; }  // why it is not ready; empty: nothing is known to be wrong
  pid_t Server() const { return server_; }             // 0: there is none yet
  pid_t ControlDaemon() const { return daemon_.Pid(); }
  const std::string& Pipes() const { return daemon_.Place().pipes; }

  // vGPUs that are in it.
  void Enter() { ++vgpus_; }
  void Leave() { --vgpus_; }
  int VGpus() const { return vgpus_; }
  // Whether it was made to last, and does not end with its last vGPU.
  bool Kept() const { return kept_; }
  void Keep(bool kept) { kept_ = kept; }
  bool Used() const { return vgpus_ > 0 || kept_; }

  // Looks whether the server is there and well. To be called once a second while programs may be in it, and when there
  // is news of it; while it is not ready, it looks by itself.
  void Look();
  // Ends the GPU contexts of a client, whose process goes on with errors. Where that fails, or no server is there yet,
  // it is tried again until the process has ended, but no more than kMostTries times with a server; the log says so
  // then.
  void Terminate(pid_t client);

  static constexpr int kMostTries = 20;

 private:
  // A client to be terminated.
  struct Doomed {
    ProcessName process;
    int tries = 0;  // in vain
    std::string error;
  };
  struct Answer {
    pid_t server = 0;
    bool faulted = false;
    std::string error;
    std::vector<Doomed> left;  // could not be terminated
  };
  struct Question {
    uid_t user = 0;
    std::vector<Doomed> doomed;
    pid_t broken = 0;  // a server to be ended
    Nanos until_started = 0;
  };
  static Answer Ask(const MpsCommands& commands, Question question, const std::atomic<bool>& ends);
  static std::vector<Doomed> End(const MpsCommands& commands, pid_t server, std::vector<Doomed> doomed);
  void Take(const Answer& answer);
  void TakeBack(const std::vector<Doomed>& left);
  void Set(State state, pid_t server, std::string error);

  const Identity identity_;
  const Host host_;
  const Nanos until_started_;
  MpsDaemon daemon_;
  State state_ = State::kStarting;
  std::string error_;
  pid_t server_ = 0;
  int vgpus_ = 0;
  bool kept_ = false;
  bool again_ = false;          // look once more: somebody asked while the last look was under way
  std::vector<Doomed> doomed_;  // with the next look
  bool faulted_ = false;        // since it was ready
  pid_t broken_ = 0;            // a server that had faulted at the last look
  std::shared_ptr<std::atomic<bool>> ends_ = std::make_shared<std::atomic<bool>>(false);
  EventLoop::Timer soon_;
  Background asking_;
};

// The name in the API.
constexpr const char* NameOf(Space::State state) {
  switch (state) {
    case Space::State::kStarting:
      return "starting";
    case Space::State::kReady:
      return "ready";
    case Space::State::kFault:
      return "fault";
    case Space::State::kClosing:
      break;
  }
  return "closing";
}

}  // namespace tessera::server
