// RUN: xdsl-opt %s -p pebble-differentiate | filecheck %s
// RUN: xdsl-opt %s -p 'pebble-differentiate{loss="cross-entropy"}' | filecheck %s --check-prefix CLASSES

// CHECK:       func.func @main(%x: tensor<?x2xf32> {{.*}}, %target: tensor<?x2xf32> {pebble.name = "target", pebble.dims = ["batch", ""]})
// CHECK-SAME:    -> (tensor<?x2xf32>, tensor<3xf32> {pebble.name = "gradient of w"}, tensor<3xf32> {pebble.name = "gradient of b"}, tensor<6xf32> {pebble.name = "gradient of 2"})
func.func @main(%x: tensor<?x2xf32> {pebble.name = "x", pebble.dims = ["batch", "2"]}) -> tensor<?x2xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 2, 2, 3]> : tensor<4xi64> rows dense<[0, 1, 1]> : tensor<3xi64> values dense<[1.0, 2.0, 3.0]> : tensor<3xf32> {pebble.values = ["w"]} : tensor<2x3xf32, #pebble.sparsity<nonzeros = 3>>
  %b = pebble.constant {pebble.values = ["b"]} dense<[0.5, 1.0, 1.5]> : tensor<3xf32>
  %v = pebble.constant dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]> : tensor<3x2xf32>
  %h = pebble.linear %x, %w bias %b activation <relu> : (tensor<?x2xf32>, tensor<2x3xf32, #pebble.sparsity<nonzeros = 3>>, tensor<3xf32>) -> tensor<?x3xf32>
  %y = pebble.linear %h, %v activation <gelu> : (tensor<?x3xf32>, tensor<3x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// What follows a layer stays there where its derivative needs no more than the result.
// CHECK:       %h = pebble.linear %x, %w bias %b activation <relu>
// CHECK-NEXT:  %y = pebble.linear %h, %v :
// CHECK-NEXT:  %y_1 = pebble.activate <gelu> %y
// CHECK-NEXT:  %0 = pebble.sub %y_1, %target
// CHECK:       %16 = pebble.mul %0, %15
// CHECK-NEXT:  %17 = pebble.sampled_product %h, %16, %v : {{.*}} -> tensor<6xf32>
// CHECK-NEXT:  %18 = pebble.constant dense<{{.*}}> : tensor<2x3xf32>
// CHECK-NEXT:  %19 = pebble.linear %16, %18 :
// CHECK-NEXT:  %20 = pebble.activate <hard_sigmoid(3.4028234663852886e+38, 0.0)> %h
// CHECK-NEXT:  %21 = pebble.mul %19, %20
// CHECK-NEXT:  %22 = pebble.sampled_product %x, %21, %w : {{.*}} -> tensor<3xf32>
// CHECK-NEXT:  %23 = pebble.sum_rows %21
// CHECK-NEXT:  func.return %y_1, %22, %23, %17

// CLASSES:     %0 = pebble.softmax %y_1
// CLASSES-NEXT: %1 = pebble.sub %0, %target
