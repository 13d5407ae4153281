// RUN: xdsl-opt %s -p 'pebble-partition-neurons{parts=2 imbalance=0.0}' | filecheck %s
// RUN: xdsl-opt %s -p 'pebble-partition-neurons{parts=2 imbalance=0.0}' | xdsl-opt --print-op-generic | xdsl-opt | filecheck %s
// RUN: xdsl-opt %s -p 'pebble-partition-neurons{parts=1}' | filecheck %s --check-prefix ONE

// Outputs 0 and 2 of the first layer use inputs 0 and 1, which part 0 owns, outputs 1 and 3 the others: nothing is sent.
// The dense layer behind needs every neuron in both parts, and the last one stays where its input is.
// CHECK-LABEL: @main
func.func @main(%x: tensor<?x4xf32>) -> tensor<?x2xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 2, 4, 6, 8]> : tensor<5xi64> rows dense<[0, 1, 2, 3, 0, 1, 2, 3]> : tensor<8xi64> values dense<1.0> : tensor<8xf32> : tensor<4x4xf32, #pebble.sparsity<nonzeros = 8>>
  %v = pebble.constant dense<1.0> : tensor<4x2xf32>
  %d = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[1, 0]> : tensor<2xi64> values dense<1.0> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  // CHECK:      %h = pebble.linear %x, %w activation <relu> partition <2 parts, owners = dense<[0, 1, 0, 1]> : tensor<4xi32>, volume = 0, messages = 0, most_connections = 4> :
  // ONE:        %h = pebble.linear %x, %w activation <relu> partition <1 parts, owners = dense<0> : tensor<4xi32>, volume = 0, messages = 0, most_connections = 8> :
  %h = pebble.linear %x, %w activation <relu> : (tensor<?x4xf32>, tensor<4x4xf32, #pebble.sparsity<nonzeros = 8>>) -> tensor<?x4xf32>
  // CHECK-NEXT: %z = pebble.linear %h, %v partition <2 parts, owners = dense<[{{0, 1|1, 0}}]> : tensor<2xi32>, volume = 4, messages = 2, most_connections = 4> :
  %z = pebble.linear %h, %v : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: %y = pebble.linear %z, %d partition <2 parts, owners = dense<[{{0, 1|1, 0}}]> : tensor<2xi32>, volume = 0, messages = 0, most_connections = 1> :
  %y = pebble.linear %z, %d : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
  // CHECK-NEXT: %s = pebble.softmax
  %s = pebble.softmax %y : (tensor<?x2xf32>) -> tensor<?x2xf32>
  // Softmax needs whole rows, and so does what reads it: each part gets the value that the other one has.
  // CHECK-NEXT: %r = pebble.linear %s, %d partition <2 parts, owners = dense<[{{0, 1|1, 0}}]> : tensor<2xi32>, volume = 2, messages = 2, most_connections = 1> :
  %r = pebble.linear %s, %d : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
  func.return %r : tensor<?x2xf32>
}
