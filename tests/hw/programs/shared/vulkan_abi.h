/* As much of Vulkan 1.0 as vulkan_limit.c needs, in the names and layouts of its specification: no SDK has to be there.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef void *VkInstance, *VkPhysicalDevice, *VkDevice, *VkQueue, *VkCommandBuffer;
typedef uint64_t VkDeviceMemory, VkBuffer, VkShaderModule, VkDescriptorSetLayout, VkPipelineLayout, VkPipeline,
    VkDescriptorPool, VkDescriptorSet, VkCommandPool, VkFence;

enum {
  VK_STRUCTURE_TYPE_APPLICATION_INFO = 0,
  VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO = 1,
  VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO = 2,
  VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO = 3,
  VK_STRUCTURE_TYPE_SUBMIT_INFO = 4,
  VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO = 5,
  VK_STRUCTURE_TYPE_FENCE_CREATE_INFO = 8,
  VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO = 12,
  VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO = 16,
  VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO = 18,
  VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO = 29,
  VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO = 30,
  VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO = 32,
  VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO = 33,
  VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO = 34,
  VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET = 35,
  VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO = 39,
  VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO = 40,
  VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO = 42,

  VK_QUEUE_COMPUTE_BIT = 2,
  VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT = 1,
  VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT = 2,
  VK_MEMORY_PROPERTY_HOST_COHERENT_BIT = 4,
  VK_BUFFER_USAGE_STORAGE_BUFFER_BIT = 0x20,
  VK_DESCRIPTOR_TYPE_STORAGE_BUFFER = 7,
  VK_SHADER_STAGE_COMPUTE_BIT = 0x20,
  VK_PIPELINE_BIND_POINT_COMPUTE = 1,
  VK_PHYSICAL_DEVICE_TYPE_CPU = 4,
};

typedef struct {
  uint32_t sType;
  const void* pNext;
  const char* pApplicationName;
  uint32_t applicationVersion;
  const char* pEngineName;
  uint32_t engineVersion, apiVersion;
} VkApplicationInfo;

typedef struct {
  uint32_t sType;
  const void* pNext;
  uint32_t flags;
  const VkApplicationInfo* pApplicationInfo;
  uint32_t enabledLayerCount;
  const char* const* ppEnabledLayerNames;
  uint32_t enabledExtensionCount;
  const char* const* ppEnabledExtensionNames;
} VkInstanceCreateInfo;

typedef struct {
  uint32_t sType;
  const void* pNext;
  uint32_t flags, queueFamilyIndex, queueCount;
  const float* pQueuePriorities;
} VkDeviceQueueCreateInfo;

typedef struct {
  uint32_t sType;
  const void* pNext;
  uint32_t flags, queueCreateInfoCount;
  const VkDeviceQueueCreateInfo* pQueueCreateInfos;
  uint32_t enabledLayerCount;
  const char* const* ppEnabledLayerNames;
  uint32_t enabledExtensionCount;
  const char* const* ppEnabledExtensionNames;
  const void* pEnabledFeatures;
} VkDeviceCreateInfo;

/* The beginning of VkPhysicalDeviceProperties; the rest, its limits, is only given room. */
typedef struct {
  uint32_t apiVersion, driverVersion, vendorID, deviceID, deviceType;
  char deviceName[256];
  char rest[2048];
} VkPhysicalDeviceProperties;

typedef struct {
  uint32_t queueFlags, queueCount, timestampValidBits, minImageTransferGranularity[3];
} VkQueueFamilyProperties;

typedef struct {
  uint32_t memoryTypeCount;
  struct {
    uint32_t propertyFlags, heapIndex;
  } memoryTypes[32];
  uint32_t memoryHeapCount;
  struct {
    uint64_t size;
    uint32_t flags;
  } memoryHeaps[16];
} VkPhysicalDeviceMemoryProperties;

typedef struct {
  uint32_t sType;
  const void* pNext;
  uint64_t allocationSize;
  uint32_t memoryTypeIndex;
} VkMemoryAllocateInfo;

typedef struct {
  uint32_t sType;
  const void* pNext;
  uint32_t flags;
  uint64_t size;
  uint32_t usage, sharingMode, queueFamilyIndexCount;
  const uint32_t* pQueueFamilyIndices;
} VkBufferCreateInfo;

typedef struct {
  uint64_t size, alignment;
  uint32_t memoryTypeBits;
} VkMemoryRequirements;

typedef struct {
  uint32_t sType;
  const void* pNext;
  uint32_t flags;
  size_t codeSize;
  const uint32_t* pCode;
} VkShaderModuleCreateInfo;

typedef struct {
  uint32_t binding, descriptorType, descriptorCount, stageFlags;
  const void* pImmutableSamplers;
} VkDescriptorSetLayoutBinding;

typedef struct {
  uint32_t sType;
  const void* pNext;
  uint32_t flags, bindingCount;
  const VkDescriptorSetLayoutBinding* pBindings;
} VkDescriptorSetLayoutCreateInfo;

typedef struct {
  uint32_t stageFlags, offset, size;
} VkPushConstantRange;

typedef struct {
  uint32_t sType;
  const void* pNext;
  uint32_t flags, setLayoutCount;
  const VkDescriptorSetLayout* pSetLayouts;
  uint32_t pushConstantRangeCount;
  const VkPushConstantRange* pPushConstantRanges;
} VkPipelineLayoutCreateInfo;

typedef struct {
  uint32_t sType;
  const void* pNext;
  uint32_t flags, stage;
  VkShaderModule module;
  const char* pName;
  const void* pSpecializationInfo;
} VkPipelineShaderStageCreateInfo;

typedef struct {
  uint32_t sType;
  const void* pNext;
  uint32_t flags;
  VkPipelineShaderStageCreateInfo stage;
  VkPipelineLayout layout;
  VkPipeline basePipelineHandle;
  int32_t basePipelineIndex;
} VkComputePipelineCreateInfo;

typedef struct {
  uint32_t type, descriptorCount;
} VkDescriptorPoolSize;

typedef struct {
  uint32_t sType;
  const void* pNext;
  uint32_t flags, maxSets, poolSizeCount;
  const VkDescriptorPoolSize* pPoolSizes;
} VkDescriptorPoolCreateInfo;

typedef struct {
  uint32_t sType;
  const void* pNext;
  VkDescriptorPool descriptorPool;
  uint32_t descriptorSetCount;
  const VkDescriptorSetLayout* pSetLayouts;
} VkDescriptorSetAllocateInfo;

typedef struct {
  VkBuffer buffer;
  uint64_t offset, range;
} VkDescriptorBufferInfo;

typedef struct {
  uint32_t sType;
  const void* pNext;
  VkDescriptorSet dstSet;
  uint32_t dstBinding, dstArrayElement, descriptorCount, descriptorType;
  const void* pImageInfo;
  const VkDescriptorBufferInfo* pBufferInfo;
  const void* pTexelBufferView;
} VkWriteDescriptorSet;

typedef struct {
  uint32_t sType;
  const void* pNext;
  uint32_t flags, queueFamilyIndex;
} VkCommandPoolCreateInfo;

typedef struct {
  uint32_t sType;
  const void* pNext;
  VkCommandPool commandPool;
  uint32_t level, commandBufferCount;
} VkCommandBufferAllocateInfo;

typedef struct {
  uint32_t sType;
  const void* pNext;
  uint32_t flags;
  const void* pInheritanceInfo;
} VkCommandBufferBeginInfo;

typedef struct {
  uint32_t sType;
  const void* pNext;
  uint32_t waitSemaphoreCount;
  const void *pWaitSemaphores, *pWaitDstStageMask;
  uint32_t commandBufferCount;
  const VkCommandBuffer* pCommandBuffers;
  uint32_t signalSemaphoreCount;
  const void* pSignalSemaphores;
} VkSubmitInfo;

typedef struct {
  uint32_t sType;
  const void* pNext;
  uint32_t flags;
} VkFenceCreateInfo;
