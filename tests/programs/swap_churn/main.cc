// swap_churn: allocates, writes in every way, copies, captures and replays graphs, frees, in random order, and knows
// what each word must be. --with adds other kinds of memory: pools (in the order of the stream), segments (cuMemCreate
// and cuMemMap), graphs (memory that graphs allocate), peer (a second process, by IPC handles), all. Its lines are
// JSON: how far it is now and then, and at its end how it was. SIGTERM: the round that is under way is the last one.
// Status 1: a word was wrong.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "churn.h"

namespace {

using namespace tessera;

struct Options {
  std::uint64_t seed = 1, rounds = 1000, seconds = 0, memory_mib = 512;
  churn::Kinds kinds;
};

std::atomic<bool> told_to_end{false};

[[noreturn]] void EndWithUsage() {
  std::fprintf(stderr,
               "usage: swap_churn [--seed N] [--rounds N] [--seconds N (0: no end)] [--memory MIB] "
               "[--with pools,segments,graphs,peer|all]\n");
  std::exit(2);
}

churn::Kinds ParseKinds(std::string_view words) {
  churn::Kinds kinds;
  while (!words.empty()) {
    const std::string_view word = words.substr(0, words.find(','));
    words.remove_prefix(std::min(words.size(), word.size() + 1));
    bool* kind = word == "pools"      ? &kinds.pools
                 : word == "segments" ? &kinds.segments
                 : word == "graphs"   ? &kinds.graph_memory
                 : word == "peer"     ? &kinds.peer
                                      : nullptr;
    if (word == "all") {
      kinds = {true, true, true, true};
    } else if (kind) {
      *kind = true;
    } else {
      EndWithUsage();
    }
  }
  return kinds;
}

Options Parse(int count, char** words) {
  Options options;
  for (int i = 1; i < count; i += 2) {
    const std::string_view name = words[i];
    std::uint64_t* value = name == "--seed"      ? &options.seed
                           : name == "--rounds"  ? &options.rounds
                           : name == "--seconds" ? &options.seconds
                           : name == "--memory"  ? &options.memory_mib
                                                 : nullptr;
    if (i + 1 == count || (!value && name != "--with")) EndWithUsage();
    if (!value) {
      options.kinds = ParseKinds(words[i + 1]);
      continue;
    }
    *value = std::strtoull(words[i + 1], nullptr, 10);
  }
  return options;
}

void Tell(const churn::Churn& churn, bool done) {
  const churn::Tally& tally = churn.Figures();
  const std::pair<const char*, std::uint64_t> figures[] = {
      {"rounds", tally.rounds},
      {"wrong_words", tally.wrong},
      {"checked_words", tally.checked},
      {"replays", churn.Replayed().Replays()},
      {"replays_with_memory", churn.Replayed().ReplaysWithMemory()},
      {"reshaped", tally.reshaped},
      {"shared", tally.shared},
      {"refused", tally.refused},
      {"bytes", tally.most_bytes},
  };
  std::printf("{\"done\": %s", done ? "true" : "false");
  for (const auto& [name, value] : figures) std::printf(", \"%s\": %llu", name, static_cast<unsigned long long>(value));
  std::printf("}\n");
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** words) {
  constexpr std::uint64_t kRoundsBetweenLines = 100;
  const Options options = Parse(count, words);
  signal(SIGTERM, [](int) { told_to_end = true; });
  churn::Churn churn(options.seed, options.memory_mib << 20, options.kinds);
  const Nanos end = options.seconds == 0 ? kNever : MonotonicNow() + static_cast<Nanos>(options.seconds) * kSecond;
  while (churn.Figures().rounds < options.rounds && MonotonicNow() < end && !told_to_end) {
    churn.Round();
    if (churn.Figures().rounds % kRoundsBetweenLines == 0) Tell(churn, false);
  }
  churn.VerifyAll();
  Tell(churn, true);
  return churn.Figures().wrong == 0 ? 0 : 1;
}
