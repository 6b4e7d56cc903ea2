#pragma once

#include <poll.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "guard/holder/holder_message.h"

namespace tessera::guard {

// Keeps the listeners and records of the programs behind the kernel gate while there is no daemon, so that their calls
// wait for the next one. A process of its own (tessera-gate-holder), because listeners must outlive a killed daemon.
// One thread.
//
// A daemon connects, says Hello, is given all trees, and tells of those that come and go. After its end the programs'
// calls wait for the time that Hello named; then they are answered with ENOSYS, as the kernel answers calls behind a
// listener that nobody has, until the next daemon connects.
class GateHolder {
 public:
  // `listener`: the socket at which daemons connect, whose name is `path`; it is removed at the end.
  // Not if another holder has the name by then.
  GateHolder(UniqueFd listener, std::string path);

  // Until there is neither a daemon nor a living program.
  void Run();

  // One turn, which waits at most `most` for something to happen. False: nobody needs it any more.
  bool RunOnce(Nanos most);

 private:
  // How long a daemon may take to connect to its new holder, and to say Hello.
  static constexpr Nanos kFirstPatience = 10 * kSecond;
  struct Tree {
    UniqueFd listener, record;
  };

  bool HasName() const;
  void Accept();
  void ReadDaemon();
  void Greet(const HolderMessage& hello);
  void DaemonEnded();
  void OnTree(std::uint64_t number, short events, bool answers);
  void AnswerCallInHand(const Tree& tree);
  void AnswerOne(const Tree& tree);

  UniqueFd listener_;
  const std::string path_;
  dev_t device_ = 0;  // of the name when the holder began,
  ino_t file_ = 0;    // and its file
  UniqueFd daemon_;   // empty: none is there
  Nanos grace_ = 0;
  Nanos until_ = MonotonicNow() + kFirstPatience;  // without a daemon: calls wait, and this process stays, until then
  bool expired_ = false;                           // the calls in hand of the last daemon were answered
  std::map<std::uint64_t, Tree> trees_;
};

// The kernel's answer to a listener's next call, or to that of `id`: ENOSYS.
void AnswerNotImplemented(int listener, std::uint64_t id);

}  // namespace tessera::guard
