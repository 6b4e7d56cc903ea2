// Damaged PTX gives an error or a module that runs to some end, and never takes the process with it.
#include <algorithm>
#include <random>

#include "soft/ptx/testing.h"

namespace tessera::soft::ptx::testing {
namespace {

constexpr std::string_view kSamples[] = {"basic.ptx", "calls.ptx", "warp.ptx"};

// Runs every kernel for a short while, on parameters that are mostly pointers to one small buffer.
void RunAll(Device& device, const Module& module) {
  const std::uint64_t buffer = device.Allocate(4096);
  std::vector<std::uint64_t> words(64, buffer);
  words[3] = 100;
  for (const Kernel& kernel : module.kernels()) {
    if (kernel.parameter_bytes > words.size() * 8) continue;
    device.progress_calls = 0;
    device.on_progress = [&device] { return device.progress_calls < 20; };
    const Launch launch = {
        .grid = {2}, .block = {40}, .dynamic_shared_bytes = 64, .parameters = std::as_bytes(std::span(words))};
    const auto done = ptx::Run(module, kernel, launch, device, device);
    EXPECT_TRUE(done || !done.error().message.empty());
  }
}

void TryOut(std::string_view text) {
  const auto parsed = Module::Parse(text);
  if (!parsed) {
    EXPECT_FALSE(parsed.error().message.empty());
    return;
  }
  Device device;
  Module& module = **parsed;
  for (std::size_t i = 0; i < module.variables().size(); ++i) {
    module.Place(i, device.Allocate(std::min<std::uint64_t>(module.variables()[i].bytes, 4096)));
  }
  for (std::size_t i = 0; i < module.variables().size(); ++i) module.InitialBytes(i);
  RunAll(device, module);
}

// One change of a kind that makes sense in a text of words and numbers.
std::string Mutated(std::string text, std::mt19937& random) {
  constexpr std::string_view kPieces[] = {
      "{", "}", ";",  ",",  "%r1", "%p1",   "4294967295",           "-1", ".b64", ".v4", "ret;", "@%p1 ", "[", "]",
      "(", ")", "0d", "\"", "/*",  "call ", "18446744073709551615", "<",  "_",    "|"};
  const std::size_t at = random() % text.size(), length = 1 + random() % 12;
  switch (random() % 5) {
    case 0:
      return text.erase(at, length);
    case 1:
      return text.insert(at, kPieces[random() % std::size(kPieces)]);
    case 2:
      return text.replace(at, length, kPieces[random() % std::size(kPieces)]);
    case 3:
      return text.insert(at, text.substr(random() % text.size(), 8 * length));
    default:
      text[at] = static_cast<char>(random());
      return text;
  }
}

TEST(Fuzz, DamagedSamples) {
  std::mt19937 random(1);
  for (const std::string_view sample : kSamples) {
    const std::string text = ReadSample(sample);
    for (int i = 0; i < 150; ++i) {
      std::string damaged = text;
      for (unsigned changes = 1 + random() % 3; changes > 0; --changes) damaged = Mutated(damaged, random);
      TryOut(damaged);
    }
  }
}

// An instruction with another one's operands is a likelier mistake than a broken word.
TEST(Fuzz, ExchangedLines) {
  std::mt19937 random(2);
  for (const std::string_view sample : kSamples) {
    const std::string text = ReadSample(sample);
    std::vector<std::string> lines(1);
    for (const char c : text) {
      lines.back() += c;
      if (c == '\n') lines.emplace_back();
    }
    for (int i = 0; i < 100; ++i) {
      std::vector<std::string> changed = lines;
      for (int k = 0; k < 3; ++k) std::swap(changed[random() % lines.size()], changed[random() % lines.size()]);
      std::string damaged;
      for (const std::string& line : changed) damaged += line;
      TryOut(damaged);
    }
  }
}

TEST(Fuzz, TruncatedSamples) {
  for (const std::string_view sample : kSamples) {
    const std::string text = ReadSample(sample);
    for (std::size_t length = 0; length < text.size(); length += 97) TryOut(std::string_view(text).substr(0, length));
  }
}

TEST(Fuzz, DeepAndLong) {
  const std::string header = ".version 8.0\n.target sm_90\n.address_size 64\n";
  const std::string open(100'000, '{'), close(100'000, '}');
  TryOut(header + ".entry k() {" + open + close + " ret; }");
  TryOut(header + ".entry k() {" + open);
  TryOut(header + ".entry k() { mov.b64 %r, " + open);
  TryOut(header + ".global .u32 x = " + open);
  TryOut(header + ".entry k() { ret; " + std::string(100'000, '!') + "%p; }");
  TryOut(header + ".entry k(" + std::string(100'000, '(') + ")");
  std::string chain = header;
  for (int i = 0; i < 3000; ++i) {
    chain +=
        ".func f" + std::to_string(i) + "() { " + (i > 0 ? "call f" + std::to_string(i - 1) + "; " : "") + "ret; }\n";
  }
  TryOut(chain + ".entry k() { call f2999; ret; }");
}

}  // namespace
}  // namespace tessera::soft::ptx::testing
