#include "plan/generate/generate.h"

#include <string>
#include <utility>

#include "plan/generate/generators.h"

namespace tessera::plan {
namespace {

constexpr Nanos kHour = 3600 * kSecond;
constexpr Nanos kDay = 24 * kHour;
constexpr std::uint32_t kMostCount = 1'000'000;

}  // namespace

Result<GeneratedKind> ParseGeneratedKind(std::string_view name) {
  for (const auto& [known, kind] : {std::pair<std::string_view, GeneratedKind>{"genai", GeneratedKind::kUse},
                                    {"cluster", GeneratedKind::kPods},
                                    {"cluster-nodes", GeneratedKind::kNodes},
                                    {"llm", GeneratedKind::kRequests}}) {
    if (name == known) return kind;
  }
  return Fail(EINVAL, "no workload is called '" + std::string(name) + "'", "use genai, cluster, cluster-nodes or llm");
}

Result<void> Generate(GeneratedKind kind, std::uint64_t seed, const GenerateOptions& options, std::ostream& out) {
  const bool has_length = kind == GeneratedKind::kUse || kind == GeneratedKind::kRequests;
  const Nanos most = kind == GeneratedKind::kUse ? 366 * kDay : 31 * kDay;
  if (options.length < 0 || (has_length && options.length > most))
    return Fail(ERANGE, "such a long workload is not made", "give at most " + std::to_string(most / kDay) + " days");
  if (options.count > kMostCount) return Fail(ERANGE, "the count is above " + std::to_string(kMostCount));
  const auto count = [&](std::uint32_t standard) { return options.count == 0 ? standard : options.count; };
  const auto length = [&](Nanos standard) { return options.length == 0 ? standard : options.length; };
  PortableRandom random(seed);
  switch (kind) {
    case GeneratedKind::kUse:
      GenerateUse(random, length(kDay), count(114), out);
      break;
    case GeneratedKind::kPods:
      GeneratePods(random, count(8152), out);
      break;
    case GeneratedKind::kNodes:
      GenerateNodes(random, count(1213), out);
      break;
    case GeneratedKind::kRequests:
      GenerateRequests(random, length(kHour), count(8819), out);
      break;
  }
  if (!out.flush()) return Fail(EIO, "the generated workload cannot be written");
  return {};
}

}  // namespace tessera::plan
