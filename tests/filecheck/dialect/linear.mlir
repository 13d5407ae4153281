// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s
// RUN: xdsl-opt %s --print-op-generic | filecheck %s --check-prefix GENERIC

func.func @main(%x: tensor<?x4xf32>, %s: tensor<?x8x4xf32>, %v: tensor<4xf32>) {
  %w = pebble.constant dense<1.0> : tensor<4x2xf32>
  %b = pebble.constant dense<[0.5, 1.0]> : tensor<2xf32>
  %c = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 3]> : tensor<2xi64> values dense<[1.0, 2.0]> : tensor<2xf32> : tensor<4x2xf32, #pebble.sparsity<nonzeros = 2>>
  %plain = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
  %row = pebble.linear %v, %w : (tensor<4xf32>, tensor<4x2xf32>) -> tensor<2xf32>
  %biased = pebble.linear %s, %w bias %b {pebble.node = "fc1", pebble.values = ["h1"]} : (tensor<?x8x4xf32>, tensor<4x2xf32>, tensor<2xf32>) -> tensor<?x8x2xf32>
  %rounded = pebble.linear %x, %w activation <relu> precision "bf16" : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
  %full = pebble.linear %x, %c bias %b activation <silu(1.0)> kernel <sparse_rows from 1, count_blocks from 16, blocks [count_blocks: 2], "density 0.250 below 0.40"> io_bounds <reads = 9 to 12, writes = 2 to 4> : (tensor<?x4xf32>, tensor<4x2xf32, #pebble.sparsity<nonzeros = 2>>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// CHECK:      %plain = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
// CHECK-NEXT: %row = pebble.linear %v, %w : (tensor<4xf32>, tensor<4x2xf32>) -> tensor<2xf32>
// CHECK-NEXT: %biased = pebble.linear %s, %w bias %b {pebble.node = "fc1", pebble.values = ["h1"]} : (tensor<?x8x4xf32>, tensor<4x2xf32>, tensor<2xf32>) -> tensor<?x8x2xf32>
// CHECK-NEXT: %rounded = pebble.linear %x, %w activation <relu> precision "bf16" : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
// CHECK-NEXT: %full = pebble.linear %x, %c bias %b activation <silu(1.0)> kernel <sparse_rows from 1, count_blocks from 16, blocks [count_blocks: 2], "density 0.250 below 0.40"> io_bounds <reads = 9 to 12, writes = 2 to 4> : (tensor<?x4xf32>, tensor<4x2xf32, #pebble.sparsity<nonzeros = 2>>, tensor<2xf32>) -> tensor<?x2xf32>

// GENERIC: %full = "pebble.linear"(%x, %c, %b) <{activation = #pebble.activation<silu(1.0)>, kernel = #pebble.kernel<sparse_rows from 1, count_blocks from 16, blocks [count_blocks: 2], "density 0.250 below 0.40">, io_bounds = #pebble.io_bounds<reads = 9 to 12, writes = 2 to 4>, operandSegmentSizes = array<i32: 1, 1, 1, 0>}> : (tensor<?x4xf32>, tensor<4x2xf32, #pebble.sparsity<nonzeros = 2>>, tensor<2xf32>) -> tensor<?x2xf32>
