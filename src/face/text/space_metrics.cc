#include <array>

#include "face/text/metric_table.h"

namespace tessera::face {
namespace {

using server::SpaceReport;
using enum MetricType;

const std::array kSpaceMetrics = std::to_array<Metric<SpaceReport>>({
    {.family = {"tessera_space_ready", kGauge, "", "space, gpu", "1 if the space takes programs."},
     .value = [](const SpaceReport& space) -> std::optional<double> { return Is(space.state, "ready"); }},
    {.family = {"tessera_space_vgpus", kGauge, "", "space, gpu", "Number of vGPUs in the space."},
     .value = [](const SpaceReport& space) -> std::optional<double> { return Of(space.vgpus.size()); }},
    {.family = {"tessera_space_in_turns", kGauge, "", "space, gpu",
                "1 if its vGPUs take turns, 0 if they run at once."},
     .value = [](const SpaceReport& space) -> std::optional<double> { return Is(space.mode, "in_turns"); }},
    {.family = {"tessera_space_at_once_gain_ratio", kGauge, "", "space, gpu",
                "Speed of its vGPUs at once over their speed in turns, by the last trial of both."},
     .value = [](const SpaceReport& space) { return space.mode_gain; }},
});

}  // namespace

std::span<const Metric<SpaceReport>> SpaceMetrics() { return kSpaceMetrics; }

}  // namespace tessera::face
