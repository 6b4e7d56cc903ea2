#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "shell.h"

namespace tessera::shell {

void* Exported(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  return library ? dlsym(library, name) : nullptr;
}

void* Find(const char* name) {
  if (void* address = Exported(name)) return address;
  std::fprintf(stderr, "driver_shell: %s\n", dlerror());
  std::_Exit(3);
}

Reply& Reply::Add(const std::string& name, long long value) {
  fields_ += (fields_.empty() ? "\"" : ", \"") + name + "\": " + std::to_string(value);
  return *this;
}

Reply& Reply::Add(const std::string& name, const std::string& text) {
  fields_ += (fields_.empty() ? "\"" : ", \"") + name + "\": \"" + text + "\"";  // paths and symbols: nothing to escape
  return *this;
}

unsigned long long NumberAt(const Words& words, std::size_t index) {
  return std::strtoull(words.at(index).c_str(), nullptr, 0);
}

}  // namespace tessera::shell

int main() {
  using namespace tessera::shell;
  Commands commands;
  AddCallCommands(commands);
  AddContextCommands(commands);
  AddGraphCommands(commands);
  AddMemoryCommands(commands);
  AddOrderCommands(commands);
  AddPlaceCommands(commands);
  AddPoolCommands(commands);
  AddRewritingCommands(commands);
  AddSegmentCommands(commands);
  AddWorkCommands(commands);
  AddProcessCommands(commands);
  AddObjectCommands(commands);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream stream(line);
    std::string command;
    stream >> command;
    Words words;
    for (std::string word; stream >> word;) words.push_back(word);
    const auto found = commands.find(command);
    if (found == commands.end()) {
      std::fprintf(stderr, "driver_shell: no command '%s'\n", command.c_str());
      return 2;
    }
    std::cout << found->second(words).Json() << '\n' << std::flush;
  }
  return 0;
}
