// RUN: xdsl-opt %s -p pebble-choose-kernels | filecheck %s

func.func @main(%x: tensor<?x4xf32>) -> (tensor<?x1xf32>, tensor<?x1xf32>, tensor<?x1xf32>) {
  %w = pebble.sparse_constant pointers dense<[0, 1]> : tensor<2xi64> rows dense<[0]> : tensor<1xi64> values dense<[3.0]> : tensor<1xf32> : tensor<4x1xf32, #pebble.sparsity<csc, nonzeros = 1>>
  %v = pebble.constant dense<[[1.0], [0.0], [1.0], [1.0]]> : tensor<4x1xf32>
  %u = pebble.constant dense<[[0.0], [0.0], [1.0], [0.0]]> : tensor<4x1xf32>
  // CHECK: %a = pebble.linear %x, %w kernel <walk from 1, count_blocks from 8, "density 0.250, stored sparse">
  %a = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<4x1xf32, #pebble.sparsity<csc, nonzeros = 1>>) -> tensor<?x1xf32>
  // CHECK: %b = pebble.linear %x, %v kernel <dense_rows from 1, dense_panels from 8, "density 0.750, stored dense">
  %b = pebble.linear %x, %v : (tensor<?x4xf32>, tensor<4x1xf32>) -> tensor<?x1xf32>
  // CHECK: %c = pebble.linear %x, %u kernel <dense_rows from 1, dense_panels from 8, "density 0.250, stored dense">
  %c = pebble.linear %x, %u : (tensor<?x4xf32>, tensor<4x1xf32>) -> tensor<?x1xf32>
  func.return %a, %b, %c : tensor<?x1xf32>, tensor<?x1xf32>, tensor<?x1xf32>
}
