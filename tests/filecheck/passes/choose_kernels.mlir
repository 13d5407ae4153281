// RUN: xdsl-opt %s -p pebble-choose-kernels | filecheck %s
// RUN: xdsl-opt %s -p 'pebble-choose-kernels{threshold=0.2}' | filecheck %s --check-prefix LOW

func.func @main(%x: tensor<?x4xf32>) -> (tensor<?x1xf32>, tensor<?x1xf32>, tensor<?x1xf32>) {
  %w = pebble.sparse_constant pointers dense<[0, 1]> : tensor<2xi64> rows dense<[0]> : tensor<1xi64> values dense<[3.0]> : tensor<1xf32> : tensor<4x1xf32, #pebble.sparsity<csc, nonzeros = 1>>
  %v = pebble.constant dense<[[1.0], [0.0], [1.0], [1.0]]> : tensor<4x1xf32>
  %u = pebble.constant dense<[[0.0], [0.0], [1.0], [0.0]]> : tensor<4x1xf32>
  // CHECK: %a = pebble.linear %x, %w kernel <sparse_rows, "density 0.250 is below 0.40">
  // LOW: %a = pebble.linear %x, %w kernel <sparse_rows, "stored sparse, density 0.250">
  %a = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<4x1xf32, #pebble.sparsity<csc, nonzeros = 1>>) -> tensor<?x1xf32>
  // CHECK: %b = pebble.linear %x, %v kernel <dense_panels, "density 0.750 is not below 0.40">
  %b = pebble.linear %x, %v : (tensor<?x4xf32>, tensor<4x1xf32>) -> tensor<?x1xf32>
  // CHECK: %c = pebble.linear %x, %u kernel <dense_panels, "stored dense, density 0.250">
  %c = pebble.linear %x, %u : (tensor<?x4xf32>, tensor<4x1xf32>) -> tensor<?x1xf32>
  func.return %a, %b, %c : tensor<?x1xf32>, tensor<?x1xf32>, tensor<?x1xf32>
}
