// The report of a plan: one page, whose plots are SVG that is written here.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "base/size.h"
#include "base/text/counted.h"
#include "cli/plan/plan_answer.h"
#include "cli/terminal/output.h"
#include "sched/goals/goal.h"
#include "sched/packing/rectangle.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark;--ink:#1d2329;--soft:#5b6670;--line:#d6dbe0;--paper:#fff;--bar:#3567b8;--bad:#b3261e;--good:#1f7a3d}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#9aa5af;--line:#39424b;--paper:#14181c;--bar:#7ba4e8;--bad:#ff8a80;--good:#7fd69b}}
body{margin:2rem auto;max-width:76rem;padding:0 1rem;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th{color:var(--soft);font-weight:600}th:first-child,td:first-child{text-align:left}
.scroll{overflow-x:auto}.bad{color:var(--bad)}.good{color:var(--good)}.soft{color:var(--soft)}
figure{margin:1rem 1rem 0 0;display:inline-block;vertical-align:top}figcaption{color:var(--soft);font-size:.85rem}
svg{background:transparent}svg text{fill:var(--soft);font:11px system-ui,sans-serif}
)";

std::string Escaped(std::string_view text) {
  std::string safe;
  for (const char letter : text) {
    switch (letter) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += letter;
    }
  }
  return safe;
}

// A colour for each tenant, far from those of its neighbours.
std::string ColourOf(std::size_t tenant) { return fmt::format("hsl({} 55% 55%)", tenant * 137 % 360); }

std::string LatencyText(Nanos time) {
  return time <= 0 ? "" : FormatMicroseconds(static_cast<std::uint64_t>(time / kMicrosecond));
}

// Rectangles side by side and above each other, as they could lie: time upwards, SMs to the right.
std::string Rectangles(const PlanAnswer& answer, std::size_t index) {
  constexpr double kSide = 180;
  std::string svg = fmt::format(
      R"svg(<figure><svg width="{0}" height="{0}" role="img" aria-label="time and SMs of GPU {1}">)svg", kSide, index);
  double below = 0;  // of what alternates in time
  double left = 0, top = 0;
  const auto draw = [&](std::size_t tenant, double x, double y, double width, double height) {
    svg += fmt::format(
        R"svg(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}" stroke="var(--paper)"><title>{}</title></rect>)svg",
        x * kSide, (1 - y - height) * kSide, width * kSide, height * kSide, ColourOf(tenant),
        Escaped(answer.workload.tenants[tenant].name));
  };
  for (const bool in_space : {true, false}) {
    std::vector<std::size_t> tenants;
    for (const std::size_t tenant : answer.plan.gpus[index].tenants) {
      if (answer.plan.placement.seats[tenant].in_space == in_space) tenants.push_back(tenant);
    }
    const auto size = [&](std::size_t tenant) { return answer.plan.placement.seats[tenant].way.size; };
    std::ranges::sort(tenants, std::ranges::greater(),
                      [&](std::size_t tenant) { return std::pair(size(tenant).time, tenant); });
    for (const std::size_t tenant : tenants) {
      const double width = sched::PctOf(size(tenant).sms) / 100;
      const double height = sched::PctOf(size(tenant).time) / 100;
      if (height <= 0) continue;
      if (left + width > 1.0001) {
        below = top;
        left = 0;
      }
      draw(tenant, left, below, width, height);
      left += width;
      top = std::max(top, below + height);
    }
    below = top;
    left = 0;
  }
  return svg +
         fmt::format(
             R"svg(<rect x=".5" y=".5" width="{0}" height="{0}" fill="none" stroke="var(--line)"/></svg><figcaption>GPU {1}</figcaption></figure>)svg",
             kSide - 1, index);
}

// What was seen to be used of a GPU, one tenant upon the other, over the record.
std::string Use(const PlanAnswer& answer, std::size_t index) {
  constexpr double kWidth = 560, kHeight = 120;
  constexpr std::size_t kMostPoints = 280;
  const auto& workload = answer.workload;
  const auto intervals = static_cast<std::size_t>((workload.length + workload.interval - 1) / workload.interval);
  const std::size_t points = std::min(intervals, kMostPoints);
  std::vector<double> below(points);
  std::string areas;
  double most = 1;
  std::vector<std::pair<std::size_t, std::vector<double>>> stacked;
  for (const std::size_t tenant : answer.plan.gpus[index].tenants) {
    std::vector<double> top = below;
    for (const plan::UseSample& sample : workload.tenants[tenant].samples) {
      const auto at = std::min(intervals - 1, static_cast<std::size_t>(sample.at / workload.interval));
      top[at * points / intervals] +=
          static_cast<double>(sample.duty) * static_cast<double>(points) / static_cast<double>(intervals);
    }
    most = std::max(most, std::ranges::max(top));
    below = top;
    stacked.emplace_back(tenant, std::move(top));
  }
  for (auto layer = stacked.rbegin(); layer != stacked.rend(); ++layer) {
    std::string path = fmt::format("M0 {}", kHeight);
    for (std::size_t i = 0; i < points; ++i) {
      path += fmt::format("L{:.1f} {:.1f}", kWidth * (static_cast<double>(i) + 0.5) / static_cast<double>(points),
                          kHeight * (1 - layer->second[i] / most));
    }
    areas += fmt::format(R"svg(<path d="{}L{} {}Z" fill="{}"><title>{}</title></path>)svg", path, kWidth, kHeight,
                         ColourOf(layer->first), Escaped(workload.tenants[layer->first].name));
  }
  const double whole = kHeight * (1 - 1 / most);
  return fmt::format(
      R"svg(<figure><svg width="{0}" height="{1}" role="img" aria-label="use of GPU {2}">{3}<path d="M0 {4:.1f}H{0}" stroke="var(--ink)" stroke-dasharray="4 3"/></svg><figcaption>GPU {2}: {5}, over {6:.1f} % of the time (the line is all of its time)</figcaption></figure>)svg",
      kWidth, kHeight, index, areas, whole, Counted(answer.plan.gpus[index].tenants.size(), "tenant"),
      answer.plan.gpus[index].over * 100);
}

// GPUs by policy.
std::string Policies(const PlanAnswer& answer) {
  std::vector<OtherPolicy> all = answer.others;
  all.insert(all.begin(), {PolicyName(answer.question.policy), answer.plan.gpus.size()});
  std::size_t most = 1;
  for (const OtherPolicy& policy : all) most = std::max(most, policy.gpus);
  constexpr double kWidth = 520, kBar = 22;
  std::string svg = fmt::format(R"svg(<svg width="{}" height="{}" role="img" aria-label="GPUs by policy">)svg",
                                kWidth + 160, kBar * static_cast<double>(all.size()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double y = kBar * static_cast<double>(i);
    const double width = kWidth * static_cast<double>(all[i].gpus) / static_cast<double>(most);
    svg += fmt::format(
        R"svg(<text x="0" y="{:.0f}">{}</text><rect x="80" y="{:.0f}" width="{:.1f}" height="{}" fill="var({})"/><text x="{:.0f}" y="{:.0f}">{}</text>)svg",
        y + 15, all[i].name, y + 3, width, kBar - 6, i == 0 ? "--bar" : "--line", 86 + width, y + 15, all[i].gpus);
  }
  return svg + "</svg>";
}

std::string GpuRows(const PlanAnswer& answer) {
  std::string rows;
  for (std::size_t i = 0; i < answer.plan.gpus.size(); ++i) {
    const plan::GpuPlan& gpu = answer.plan.gpus[i];
    rows += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{:.1f}</td><td>{:.1f}</td><td>{:.1f}</td><td>{:.1f}</td><td>{:.1f}</td><td>{}</"
        "td></tr>",
        i, gpu.tenants.size(), gpu.memory * 100, gpu.time * 100, gpu.over * 100, gpu.figures.ExecutedPct(),
        gpu.figures.MovingPct(), gpu.binds);
  }
  return rows;
}

std::string TenantRows(const PlanAnswer& answer) {
  std::string rows;
  for (std::size_t i = 0; i < answer.workload.tenants.size(); ++i) {
    const plan::Tenant& tenant = answer.workload.tenants[i];
    const auto& seat = answer.plan.placement.seats[i];
    std::string on;
    for (const std::size_t gpu : seat.gpus) on += (on.empty() ? "" : ", ") + std::to_string(gpu);
    const plan::Attainment got = answer.plan.attained.empty() ? plan::Attainment{} : answer.plan.attained[i];
    const bool missed = !answer.plan.attained.empty() && !got.kept;
    std::string speed;
    if (got.speed.value > 0)
      speed = fmt::format("{:.1f} ({:.1f}–{:.1f})", got.speed.value * 100, got.speed.low * 100, got.speed.high * 100);
    rows += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{:.1f}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td "
        "class={}>{}</td></tr>",
        Escaped(tenant.name), on, got.gpu_pct, speed, LatencyText(got.p50), LatencyText(got.p99),
        tenant.goal ? sched::FormatGoal(*tenant.goal) : "", missed ? "bad" : "good",
        Escaped(got.why.empty() ? got.verdict : got.verdict + ": " + got.why));
  }
  return rows;
}

std::string Plots(const PlanAnswer& answer) {
  constexpr std::size_t kMost = 64;  // a page that can be read
  const std::size_t count = std::min(answer.plan.gpus.size(), kMost);
  const bool record = answer.workload.interval > 0;
  std::string plots =
      record ? "<h2>Use of each GPU over the record</h2>" : "<h2>Time (up) and SMs (right) that were promised</h2>";
  for (std::size_t i = 0; i < count; ++i) plots += record ? Use(answer, i) : Rectangles(answer, i);
  if (count < answer.plan.gpus.size())
    plots += fmt::format("<p class=soft>The first {} of {}.</p>", count, Counted(answer.plan.gpus.size(), "GPU"));
  return plots;
}

}  // namespace

std::string PlanHtml(const PlanAnswer& answer) {
  std::string notes;
  if (const std::string moves = MovesText(answer); !moves.empty())
    notes += "<li>" + moves + ". They are shown where they begin</li>";
  for (const std::string& note : answer.workload.notes) notes += "<li>" + Escaped(note) + "</li>";
  return fmt::format(
      R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Plan of {0}</title><style>{1}</style></head><body>
<h1>{0}: {2} on {3}</h1>
<p>{4}, {5} of memory each. <span class=soft>Its figures: {6}.</span></p>
{7}
<ul class=soft>{8}</ul>
{9}
<h2>GPUs</h2><div class=scroll><table><tr><th>GPU<th>tenants<th>memory %<th>time promised %<th>over %<th>busy %<th>lost to moves %<th>binds</tr>{10}</table></div>
<h2>Tenants</h2><div class=scroll><table><tr><th>tenant<th>GPU<th>GPU %<th>speed % (95 %)<th>p50<th>p99<th>goal<th>kept</tr>{11}</table></div>
</body></html>
)html",
      Escaped(answer.workload.title), kStyle, Counted(answer.workload.tenants.size(), "tenant"),
      Counted(answer.plan.gpus.size(), "GPU"), Escaped(answer.question.gpu.title),
      FormatSize(answer.question.gpu.memory), Escaped(answer.question.gpu.source), Policies(answer), notes,
      Plots(answer), GpuRows(answer), TenantRows(answer));
}

}  // namespace tessera::cli
