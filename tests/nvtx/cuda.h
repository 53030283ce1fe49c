/* The types that nvToolsExtCuda.h needs of CUDA's header, for programs that find the driver at run time. */
#pragma once
#define CUDA_VERSION 13000
typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
