// driver_shell: a program of the driver API that does what stdin tells it, a command a line, and answers each with a
// line of JSON. So a test decides in which order the calls of several processes come, and never has to wait for time to
// pass.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cuda/cuda_abi.h"

namespace tessera::shell {

// The driver's function of that name, as dlopen("libcuda.so.1") gives it; null if there is none.
void* Exported(const char* name);
// The same; ends the program if there is none.
void* Find(const char* name);

// Calls it with exactly these types; they must be those of the function.
template <typename... Arguments>
cuda::CUresult Call(const char* name, Arguments... arguments) {
  return reinterpret_cast<cuda::CUresult (*)(Arguments...)>(Find(name))(arguments...);
}

// An answer: {"result": 0, …}.
class Reply {
 public:
  Reply(cuda::CUresult result) {
    Add("result", static_cast<long long>(result));
  }  // NOLINT(google-explicit-constructor)
  Reply& Add(const std::string& name, long long value);
  Reply& Add(const std::string& name, const std::string& text);
  std::string Json() const { return "{" + fields_ + "}"; }

 private:
  std::string fields_;
};

// The words after the command's own. at() of one that is missing ends the program.
using Words = std::vector<std::string>;
using Commands = std::map<std::string, std::function<Reply(const Words&)>>;

unsigned long long NumberAt(const Words& words, std::size_t index);

void AddCallCommands(Commands& commands);
void AddContextCommands(Commands& commands);
void AddGraphCommands(Commands& commands);
void AddMemoryCommands(Commands& commands);
void AddOrderCommands(Commands& commands);
void AddPlaceCommands(Commands& commands);
void AddPoolCommands(Commands& commands);
void AddRewritingCommands(Commands& commands);
void AddSegmentCommands(Commands& commands);
void AddWorkCommands(Commands& commands);
void AddProcessCommands(Commands& commands);
void AddObjectCommands(Commands& commands);

}  // namespace tessera::shell
