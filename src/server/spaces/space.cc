#include "server/spaces/space.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "server/record/events.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

constexpr std::chrono::milliseconds kAskAgain(20);
constexpr Nanos kLookAgain = 100 * kMillisecond;  // while it is not ready, or has clients to terminate

bool Lives(const ProcessName& process) {
  const auto start = ProcessStart(process.pid);
  return start && *start == process.start;
}

}  // namespace

Space::Space(EventLoop& loop, Identity identity, const MpsPlace& place, std::string record, Host host,
             Nanos until_started)
    : identity_(std::move(identity)),
      host_(std::move(host)),
      until_started_(until_started),
      daemon_(loop, place, std::move(record),
              {.ended =
                   [this] {
                     Set(State::kStarting, 0, "its MPS control daemon ended");
                     Look();
                   },
               .closed = [this] { host_.closed(*this); }}),
      soon_(loop, [this] { Look(); }),
      asking_(loop) {}

Space::~Space() { *ends_ = true; }

Result<void> Space::Open() {
  auto opened = daemon_.Open();
  if (opened) Look();
  return opened;
}

void Space::Close() {
  *ends_ = true;
  state_ = State::kClosing;
  server_ = 0;
  host_.changed(*this);
  daemon_.Close();
}

void Space::Look() {
  if (state_ == State::kClosing) return;
  if (asking_.Busy()) {
    again_ = true;
    return;
  }
  const auto answer = std::make_shared<Answer>();
  Question question{
      .user = identity_.uid, .doomed = std::exchange(doomed_, {}), .broken = broken_, .until_started = until_started_};
  asking_.Start([answer, commands = MpsCommands(daemon_.Place()), question = std::move(question),
                 ends = ends_] { *answer = Ask(commands, question, *ends); },
                [this, answer] {
                  Take(*answer);
                  if (state_ == State::kFault || state_ == State::kStarting || !doomed_.empty())
                    soon_.ArmIn(kLookAgain);
                  if (std::exchange(again_, false)) Look();
                });
}

void Space::Terminate(pid_t client) {
  const auto start = ProcessStart(client);
  if (!start) return;  // it has ended
  doomed_.push_back({.process = {.pid = client, .start = *start}, .error = "no MPS server is there"});
  Look();
}

// On a thread of its own.
Space::Answer Space::Ask(const MpsCommands& commands, Question question, const std::atomic<bool>& ends) {
  Answer answer{.left = std::move(question.doomed)};
  const Nanos begin = MonotonicNow();
  if (question.broken != 0) (void)commands.ShutDown(question.broken);
  for (const Nanos until = MonotonicNow() + question.until_started; answer.server == 0 && !ends;) {
    auto servers = commands.Servers();
    if (servers) std::erase(*servers, question.broken);
    if (servers && !servers->empty()) {
      answer.server = servers->front();
      break;
    }
    const auto failed = servers ? commands.StartServer(question.user) : Result<void>(std::unexpected(servers.error()));
    if (!failed) answer.error = failed.error().message;
    if (MonotonicNow() >= until) return answer;
    std::this_thread::sleep_for(kAskAgain);
  }
  if (answer.server == 0) return answer;
  if (question.broken != 0)
    log::Debug("MPS server {} follows {}, {} ms after that was told to end", answer.server, question.broken,
               (MonotonicNow() - begin) / kMillisecond);
  answer.error.clear();
  answer.left = End(commands, answer.server, std::move(answer.left));
  answer.faulted = commands.HasFaulted(answer.server).value_or(false);
  return answer;
}

// Those that could not be terminated.
std::vector<Space::Doomed> Space::End(const MpsCommands& commands, pid_t server, std::vector<Doomed> doomed) {
  std::erase_if(doomed, [&](Doomed& each) {
    if (!Lives(each.process)) return true;
    const auto ended = commands.Terminate(server, each.process.pid);
    if (ended) return true;
    ++each.tries;
    each.error = ended.error().message;
    return false;
  });
  return doomed;
}

// After a fault the clients' contexts are broken, but the server takes no others before their processes have ended, and
// for some time after that. So it is ended at the second look, and another one is started.
void Space::Take(const Answer& answer) {
  if (state_ == State::kClosing) return;
  TakeBack(answer.left);
  broken_ = answer.faulted && state_ == State::kFault ? answer.server : 0;
  if (answer.server == 0)
    return Set(State::kStarting, 0, answer.error.empty() ? "no MPS server started" : answer.error);
  if (!answer.faulted) return Set(State::kReady, answer.server, "");
  Set(State::kFault, answer.server, "a program's fault on the GPU ended the programs of the space");
}

// Without a server no client has a context that could run. A process may be in no hurry to end, so that is not a try.
void Space::TakeBack(const std::vector<Doomed>& left) {
  for (const Doomed& each : left) {
    if (!Lives(each.process)) continue;
    if (each.tries < kMostTries) {
      doomed_.push_back(each);
      continue;
    }
    log::Warn("GPU {}: space {}: the GPU contexts of process {} are not ended, and its work may run on; end it: {}",
              identity_.gpu, identity_.name, each.process.pid, each.error);
  }
}

void Space::Set(State state, pid_t server, std::string error) {
  if (state == state_ && server == server_ && error == error_) return;
  if (state != state_) {
    const bool fault = state == State::kFault;
    if (fault || (state == State::kReady && faulted_)) {
      faulted_ = fault;
      const char* const text =
          fault ? "a program's fault on the GPU ended all programs of the space" : "takes programs again";
      log::Warn("GPU {}: space {}: {}", identity_.gpu, identity_.name, text);
      events::Note({.type = fault ? EventType::kSpaceFault : EventType::kSpaceReady,
                    .gpu = identity_.gpu,
                    .owner = identity_.uid,
                    .text = fmt::format("space {}: {}", identity_.name, text)});
    } else if (state == State::kReady) {
      log::Info("GPU {}: space {} is ready: MPS server {} of user {}", identity_.gpu, identity_.name, server,
                identity_.uid);
    }
  }
  state_ = state;
  server_ = server;
  error_ = std::move(error);
  host_.changed(*this);
}

}  // namespace tessera::server
