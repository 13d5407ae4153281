// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s

func.func @main(%x: tensor<?x2xf32>, %y: tensor<?x3xf32>) {
  %w = pebble.sparse_constant pointers dense<[0, 2, 2, 3]> : tensor<4xi64> rows dense<[0, 1, 1]> : tensor<3xi64> values dense<[1.0, 2.0, 3.0]> : tensor<3xf32> : tensor<2x3xf32, #pebble.sparsity<nonzeros = 3>>
  %v = pebble.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
  %of_w = pebble.sampled_product %x, %y, %w : (tensor<?x2xf32>, tensor<?x3xf32>, tensor<2x3xf32, #pebble.sparsity<nonzeros = 3>>) -> tensor<3xf32>
  %of_v = pebble.sampled_product %x, %y, %v : (tensor<?x2xf32>, tensor<?x3xf32>, tensor<2x3xf32>) -> tensor<6xf32>
  %of_b = pebble.sum_rows %y : (tensor<?x3xf32>) -> tensor<3xf32>
  func.return
}

// CHECK:      %of_w = pebble.sampled_product %x, %y, %w : (tensor<?x2xf32>, tensor<?x3xf32>, tensor<2x3xf32, #pebble.sparsity<nonzeros = 3>>) -> tensor<3xf32>
// CHECK-NEXT: %of_v = pebble.sampled_product %x, %y, %v : (tensor<?x2xf32>, tensor<?x3xf32>, tensor<2x3xf32>) -> tensor<6xf32>
// CHECK-NEXT: %of_b = pebble.sum_rows %y : (tensor<?x3xf32>) -> tensor<3xf32>
