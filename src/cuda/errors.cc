#include "cuda/errors.h"

namespace tessera::cuda {
namespace {

struct ResultWords {
  CUresult result;
  const char* name;
  const char* text;
};

constexpr ResultWords kWords[] = {
#define RESULT(name, value, text) {name, #name, text},
#include "cuda/results.def"
#undef RESULT
};

const ResultWords* Find(CUresult result) {
  for (const ResultWords& words : kWords) {
    if (words.result == result) return &words;
  }
  return nullptr;
}

}  // namespace

const char* ResultName(CUresult result) {
  const ResultWords* words = Find(result);
  return words ? words->name : nullptr;
}

const char* ResultText(CUresult result) {
  const ResultWords* words = Find(result);
  return words ? words->text : nullptr;
}

}  // namespace tessera::cuda
