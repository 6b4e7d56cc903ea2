// Shared by the tests of the line agent.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pager/line/line_agent.h"
#include "pager/testing/heap_fixture.h"

namespace tessera::pager {

// An agent, and what it answers to messages that a test says.
class LineAgentTest : public HeapFixture {
 protected:
  // The answers to a message with so many descriptors of nothing.
  bool Say(const wire::LineMessage& message, std::size_t descriptors = 0) {
    std::vector<UniqueFd> fds(descriptors);
    for (UniqueFd& fd : fds) fd.Reset(memfd_create("nothing", MFD_CLOEXEC));
    answers.clear();
    return agent.On(message, fds, &answers);
  }
  wire::LineMessage Naming(wire::LineType type, std::vector<std::uint64_t> chunks) {
    wire::LineMessage message{.type = type, .count = static_cast<std::uint32_t>(chunks.size())};
    std::ranges::copy(chunks, message.chunk);
    return message;
  }
  // A mover that finds all that it is shown.
  wire::LineMessage Adopted(const LineAgent::Answer& adopt) {
    wire::LineMessage message = adopt.message;
    message.type = wire::LineType::kAdopted;
    return message;
  }
  std::vector<wire::LineType> Types() const {
    std::vector<wire::LineType> types;
    for (const auto& answer : answers) types.push_back(answer.message.type);
    return types;
  }
  static std::vector<std::uint64_t> Chunks(const LineAgent::Answer& answer) {
    return {answer.message.chunk, answer.message.chunk + answer.message.count};
  }

  std::vector<LineAgent::Answer> answers;
};

}  // namespace tessera::pager
