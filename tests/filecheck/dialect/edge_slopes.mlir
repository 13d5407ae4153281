// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s

func.func @main(%x: tensor<3x4xf32>, %s: tensor<3x4xf32>, %d: tensor<3x2xf32>) {
  %a = pebble.sparse_constant pointers dense<[0, 2, 2, 3]> : tensor<4xi64> rows dense<[0, 1, 1]> : tensor<3xi64> values dense<[1.0, 2.0, 3.0]> : tensor<3xf32> : tensor<3x3xf32, #pebble.sparsity<nonzeros = 3>>
  %l = pebble.edge_totals %s, %a heads 2 score <leaky_relu(0.2)> epsilon 1.0e-16 from_zero : (tensor<3x4xf32>, tensor<3x3xf32, #pebble.sparsity<nonzeros = 3>>) -> tensor<3x2xf32>
  %y = pebble.edge_slopes %x, %s, %l, %a heads 2 score <leaky_relu(0.2)> : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x2xf32>, tensor<3x3xf32, #pebble.sparsity<nonzeros = 3>>) -> tensor<3x10xf32>
  %t = pebble.concat %l, %d axis 1 : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x4xf32>
  %z = pebble.edge_slopes %x, %s, %t, %a sources heads 2 : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x3xf32, #pebble.sparsity<nonzeros = 3>>) -> tensor<3x10xf32>
  func.return
}

// CHECK:      %l = pebble.edge_totals %s, %a heads 2 score <leaky_relu(0.2)> epsilon 1.000000e-16 from_zero : (tensor<3x4xf32>, tensor<3x3xf32, #pebble.sparsity<nonzeros = 3>>) -> tensor<3x2xf32>
// CHECK-NEXT: %y = pebble.edge_slopes %x, %s, %l, %a heads 2 score <leaky_relu(0.2)> : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x2xf32>, tensor<3x3xf32, #pebble.sparsity<nonzeros = 3>>) -> tensor<3x10xf32>
// CHECK:      %z = pebble.edge_slopes %x, %s, %t, %a sources heads 2 : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x3xf32, #pebble.sparsity<nonzeros = 3>>) -> tensor<3x10xf32>
