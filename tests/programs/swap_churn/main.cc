// swap_churn: allocates, writes in every way, copies, captures and replays graphs, frees, in random order, and knows
// what each word must be. Its lines are JSON: how far it is now and then, and at its end how it was. Status 1: a word
// was wrong.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/clock.h"
#include "churn.h"

namespace {

using namespace tessera;

struct Options {
  std::uint64_t seed = 1, rounds = 1000, seconds = 0, memory_mib = 512;
};

Options Parse(int count, char** words) {
  Options options;
  for (int i = 1; i < count; i += 2) {
    const std::string_view name = words[i];
    std::uint64_t* value = name == "--seed"      ? &options.seed
                           : name == "--rounds"  ? &options.rounds
                           : name == "--seconds" ? &options.seconds
                           : name == "--memory"  ? &options.memory_mib
                                                 : nullptr;
    if (!value || i + 1 == count) {
      std::fprintf(stderr, "usage: swap_churn [--seed N] [--rounds N] [--seconds N (0: no end)] [--memory MIB]\n");
      std::exit(2);
    }
    *value = std::strtoull(words[i + 1], nullptr, 10);
  }
  return options;
}

void Tell(const churn::Tally& tally, bool done) {
  std::printf(
      "{\"done\": %s, \"rounds\": %llu, \"wrong_words\": %llu, \"checked_words\": %llu, \"replays\": %llu, "
      "\"refused\": %llu, \"bytes\": %llu}\n",
      done ? "true" : "false", static_cast<unsigned long long>(tally.rounds),
      static_cast<unsigned long long>(tally.wrong), static_cast<unsigned long long>(tally.checked),
      static_cast<unsigned long long>(tally.replays), static_cast<unsigned long long>(tally.refused),
      static_cast<unsigned long long>(tally.most_bytes));
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** words) {
  constexpr std::uint64_t kRoundsBetweenLines = 100;
  const Options options = Parse(count, words);
  churn::Churn churn(options.seed, options.memory_mib << 20);
  const Nanos end = options.seconds == 0 ? kNever : MonotonicNow() + static_cast<Nanos>(options.seconds) * kSecond;
  while (churn.Figures().rounds < options.rounds && MonotonicNow() < end) {
    churn.Round();
    if (churn.Figures().rounds % kRoundsBetweenLines == 0) Tell(churn.Figures(), false);
  }
  churn.VerifyAll();
  Tell(churn.Figures(), true);
  return churn.Figures().wrong == 0 ? 0 : 1;
}
