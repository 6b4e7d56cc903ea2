#include "cli/top/top.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/terminal/output.h"
#include "cli/top/top_daemon.h"
#include "cli/top/top_terminal.h"
#include "client/api_client.h"

namespace tessera::cli {
using client::ApiClient;
using client::Json;
namespace top {
namespace {

// A busy daemon may take so long; after that, the status line says so.
constexpr Nanos kSilence = 3 * kSecond;

int TextWidth() {
  winsize size{};
  const bool known = isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

Result<int> PrintOnce(const ApiClient& client) {
  const auto answers = Ask(client);
  if (!answers) return std::unexpected(answers.error());
  Model model;
  model.Take(Read(*answers, MonotonicNow()));
  Print(Text(model, TextWidth(), LocaleIsUtf8()));
  return 0;
}

Result<int> PrintLines(const ApiClient& client, const TopChoices& choices, std::chrono::nanoseconds delay) {
  for (auto next = std::chrono::steady_clock::now();; std::this_thread::sleep_until(next)) {
    const auto answers = Ask(client);
    if (!answers) return std::unexpected(answers.error());
    Print(answers->dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    if (std::fflush(stdout) != 0) return FailErrno("cannot write to stdout");
    if (choices.once) return 0;
    next = std::max(next + delay, std::chrono::steady_clock::now());
  }
}

// Signals that end or change the picture, as a descriptor: so none arrives while the terminal is written.
Result<UniqueFd> TakeSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  UniqueFd fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return FailErrno("cannot watch for signals");
  return fd;
}

// The main loop of `tessera top` on a terminal.
class Live {
 public:
  Live(Terminal& terminal, const UniqueFd& signals, const std::string& run_dir, Nanos delay)
      : terminal_(terminal), signals_(signals), delay_(delay), daemon_(run_dir, delay), heard_(MonotonicNow()) {}

  // The exit status.
  int Run() {
    while (!session_.quit() && !ended_by_) {
      Screen screen = terminal_.Blank();
      const auto cursor = Draw(session_, screen);
      terminal_.Show(screen, cursor);
      Wait();
    }
    return ended_by_ ? 128 + *ended_by_ : 0;
  }

 private:
  void Wait() {
    pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {signals_.Get(), POLLIN, 0}, {daemon_.news_fd(), POLLIN, 0}};
    poll(fds, std::size(fds), 1000);
    TakeSignals();
    if (fds[0].revents & (POLLHUP | POLLERR | POLLNVAL)) ended_by_ = SIGHUP;
    while (const auto key = terminal_.Read()) {
      if (auto order = session_.Press(*key)) daemon_.Do(std::move(*order));
      if (session_.quit()) return;
    }
    TakeNews();
  }

  void TakeSignals() {
    signalfd_siginfo signal{};
    while (read(signals_.Get(), &signal, sizeof signal) == sizeof signal) {
      const int number = static_cast<int>(signal.ssi_signo);
      if (number == SIGTSTP) {
        terminal_.Stop();
      } else if (number != SIGWINCH) {  // the next picture has the new size anyway
        ended_by_ = number;
      }
    }
  }

  void TakeNews() {
    Daemon::News news = daemon_.Take();
    const Nanos now = MonotonicNow();
    if (news.answer) {
      heard_ = now;
      if (*news.answer) {
        session_.Take(Read(**news.answer, news.at));
      } else {
        session_.Lost(news.answer->error());
      }
    }
    for (const auto& [order, answer] : news.done) session_.Done(order, answer);
    const Nanos silent = now - heard_;
    session_.SetSilent(silent > kSilence + delay_ ? silent : 0);
  }

  Terminal& terminal_;
  const UniqueFd& signals_;
  const Nanos delay_;
  Daemon daemon_;
  Session session_;
  Nanos heard_;  // when something last came from the daemon
  std::optional<int> ended_by_;
};

}  // namespace
}  // namespace top

Result<int> Top(const Common& common, const TopChoices& choices) {
  const std::chrono::nanoseconds delay(static_cast<Nanos>(choices.delay_s * static_cast<double>(kSecond)));
  const std::string run_dir = common.RunDirectory();
  if (common.json) return top::PrintLines(ApiClient(run_dir), choices, delay);
  if (choices.once) return top::PrintOnce(ApiClient(run_dir));
  auto terminal = top::Terminal::Open();
  if (!terminal) return std::unexpected(terminal.error());
  const auto signals = top::TakeSignals();
  if (!signals) return std::unexpected(signals.error());
  return top::Live(**terminal, *signals, run_dir, delay.count()).Run();
}

}  // namespace tessera::cli
