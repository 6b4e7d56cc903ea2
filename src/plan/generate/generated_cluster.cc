// Pods and nodes like those of a shared GPU cluster. Statistics of Alibaba's cluster-trace-gpu-v2023 ("openb"), in the
// list that FGD (Weng et al., ATC'23) calls default: 13.3 % of 8,152 pods ask for no GPU, 37.8 % for a part of one,
// 48.0 % for one, 0.2 %, 0.2 % and 0.5 % for 2, 4 and 8; its 1,213 nodes with GPUs have seven types of them.
#include <fmt/format.h>

#include <array>

#include "plan/generate/generators.h"

namespace tessera::plan {
namespace {

struct Size {
  std::uint32_t weight;
  std::uint32_t cpu_milli, memory_mib;
};

// What pods ask for, by their GPUs.
struct PodClass {
  std::uint32_t weight;  // of 10,000
  std::uint32_t gpus;
  bool part;  // of one
  std::array<Size, 4> sizes;
};

constexpr std::array<PodClass, 6> kClasses = {{
    {1335, 0, false, {{{35, 12'500, 57'344}, {30, 32'000, 49'152}, {20, 8'000, 30'517}, {15, 16'000, 51'200}}}},
    {3776, 1, true, {{{50, 3'152, 5'600}, {20, 8'000, 30'517}, {15, 4'000, 15'258}, {15, 6'000, 12'288}}}},
    {4799, 1, false, {{{40, 11'400, 48'128}, {25, 11'908, 47'104}, {20, 8'000, 30'720}, {15, 4'000, 16'384}}}},
    {20, 2, false, {{{50, 16'200, 66'560}, {30, 6'000, 65'536}, {20, 30'200, 160'768}, {0, 0, 0}}}},
    {18, 4, false, {{{75, 32'200, 132'096}, {25, 60'200, 320'512}, {0, 0, 0}, {0, 0, 0}}}},
    {52, 8, false, {{{40, 88'000, 327'680}, {40, 64'200, 263'168}, {20, 120'000, 655'360}, {0, 0, 0}}}},
}};

// Thousandths of a GPU that the pods with a part ask for, and how often.
constexpr std::array<std::uint32_t, 12> kParts = {810, 470, 320, 650, 230, 460, 590, 160, 550, 220, 370, 110};
constexpr std::array<std::uint32_t, 12> kPartWeights = {350, 244, 107, 82, 46, 42, 24, 24, 23, 20, 23, 15};

struct NodeClass {
  std::uint32_t weight;
  const char* model;
  std::uint32_t gpus, cpu_milli, memory_mib;
};

constexpr std::array<NodeClass, 9> kNodes = {{
    {549, "G2", 8, 96'000, 393'216},
    {404, "T4", 2, 104'000, 524'288},
    {112, "P100", 2, 16'000, 122'880},
    {39, "G3", 8, 128'000, 786'432},
    {36, "V100M16", 4, 32'000, 131'072},
    {22, "P100", 2, 64'000, 262'144},
    {21, "V100M32", 8, 96'000, 786'432},
    {20, "V100M16", 1, 8'000, 32'768},
    {10, "V100M32", 4, 48'000, 376'832},
}};

// Seconds. Most pods run for hours, and a few for months.
constexpr Quantile kLifetime[] = {
    {0, 20}, {250'000, 600}, {500'000, 5'400}, {900'000, 260'000}, {1'000'000, 9'000'000}};
constexpr std::int64_t kSecondsBetween = 1'500;

template <typename Classes>
const auto& PickOne(PortableRandom& random, const Classes& classes) {
  std::array<std::uint32_t, std::tuple_size_v<Classes>> weights{};
  for (std::size_t i = 0; i < classes.size(); ++i) weights[i] = classes[i].weight;
  return classes[random.Pick(weights)];
}

}  // namespace

void GeneratePods(PortableRandom& random, std::uint32_t pods, std::ostream& out) {
  out << "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
         "scheduled_time\n";
  std::int64_t created = 0;
  for (std::uint32_t i = 0; i < pods && out; ++i) {
    const PodClass& pod = PickOne(random, kClasses);
    const Size& size = PickOne(random, pod.sizes);
    const std::uint32_t milli = pod.gpus == 0 ? 0 : pod.part ? kParts[random.Pick(kPartWeights)] : 1000;
    const bool is_best_effort = random.Chance(420'000);
    const std::int64_t lifetime = random.Of(kLifetime);
    out << fmt::format("pod-{:04},{},{},{},{},,{},Running,{},{},{}\n", i, size.cpu_milli, size.memory_mib, pod.gpus,
                       milli, is_best_effort ? "BE" : "LS", created, created + lifetime, created);
    created += random.Exponential(kSecondsBetween);
  }
}

void GenerateNodes(PortableRandom& random, std::uint32_t nodes, std::ostream& out) {
  out << "sn,cpu_milli,memory_mib,gpu,model\n";
  for (std::uint32_t i = 0; i < nodes && out; ++i) {
    const NodeClass& node = PickOne(random, kNodes);
    out << fmt::format("node-{:04},{},{},{},{}\n", i, node.cpu_milli, node.memory_mib, node.gpus, node.model);
  }
}

}  // namespace tessera::plan
